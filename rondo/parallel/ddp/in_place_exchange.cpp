#include "rondo/parallel/ddp/in_place_exchange.h"

#include <torch/types.h>

namespace rondo {

InPlaceExchange::InPlaceExchange(std::vector<ModelTensor> parameters, Group group, const DdpOptions& options)
    : GradientExchange(std::move(parameters), std::move(group)),
      bucket_bytes_(options.bucket_bytes.value_or(KiB(64))) {}

InPlaceExchange::~InPlaceExchange() { abandon(); }

void InPlaceExchange::set_order(std::span<const std::size_t> order) {
  buckets_.reset();
  set_buckets(buckets_.emplace(parameters_, group_, order, bucket_bytes_).members());
}

void InPlaceExchange::begin_backward(WeightSource weight) {
  GradientExchange::begin_backward(std::move(weight));
  missing_.clear();
  saved_.clear();
}

void InPlaceExchange::gradient_missing(std::size_t parameter) {
  const at::Tensor& grad = parameters_[parameter].tensor.grad();
  missing_.push_back(parameter);
  saved_.push_back(grad.defined() ? grad.clone() : at::Tensor());
  buckets_->take(parameter);
}

void InPlaceExchange::finish(const std::vector<bool>& untouched) {
  for (std::size_t bucket = 0; bucket < buckets_->members().size(); ++bucket) {
    wait(bucket);
    buckets_->bring_back(bucket);
  }
  for (std::size_t i = 0; i < missing_.size(); ++i) {
    if (untouched[missing_[i]]) parameters_[missing_[i]].tensor.mutable_grad() = saved_[i];
  }
  saved_.clear();
}

void InPlaceExchange::abandon() noexcept {
  GradientExchange::abandon();
  saved_.clear();
}

}  // namespace rondo
