#include "rondo/parallel/ddp/in_place_exchange.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/memory/scope.h"
#include "rondo/parallel/ddp/bucket.h"

namespace rondo {
namespace {

// From this size on tensors are in registered memory, see register_cpu_allocations.
constexpr Bytes kLarge = KiB(64);

}  // namespace

InPlaceExchange::InPlaceExchange(std::vector<ModelTensor> parameters, Group group, const DdpOptions& options)
    : GradientExchange(std::move(parameters), std::move(group)),
      bucket_bytes_(std::min(kLarge, options.bucket_bytes.value_or(kLarge))),
      places_(parameters_.size()) {}

InPlaceExchange::~InPlaceExchange() { abandon(); }

std::uint64_t InPlaceExchange::bucket_bytes(const std::vector<ModelTensor>& parameters) {
  std::uint64_t bytes = 0;
  for (const ModelTensor& parameter : parameters) {
    const Bytes own{parameter.tensor.nbytes()};
    if (parameter.tensor.requires_grad() && own < kLarge) bytes += own.count;
  }
  return bytes;
}

void InPlaceExchange::set_order(std::span<const std::size_t> order) {
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> small;
  std::vector<std::size_t> position(parameters_.size());
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < order.size(); ++i) {
    position[order[i]] = i;
    if (Bytes{parameters_[order[i]].tensor.nbytes()} >= kLarge) {
      groups.push_back({order[i]});
    } else {
      small.push_back(order[i]);
    }
  }
  for (std::vector<std::size_t>& bucket :
       plan_buckets(gradient_specs(parameters_), small, bucket_bytes_, bucket_bytes_)) {
    groups.push_back(std::move(bucket));
  }
  // A bucket's turn comes when its last gradient is due.
  std::sort(groups.begin(), groups.end(),
            [&](const auto& a, const auto& b) { return position[a.back()] < position[b.back()]; });

  set_buckets(groups);
  buckets_.clear();
  for (std::vector<std::size_t>& members : groups) {
    const bool large = Bytes{parameters_[members.front()].tensor.nbytes()} >= kLarge;
    const MemoryScope scope(MemoryCategory::communication, kRootMemoryUnit);
    at::Tensor flat = large ? at::Tensor() : make_bucket(parameters_, members, places_, /*registered=*/true);
    buckets_.push_back({std::move(members), std::move(flat)});
  }
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
  gradient_ready(parameter);
}

void InPlaceExchange::gradient_ready(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = parameters_[parameter].tensor;
  at::Tensor& grad = tensor.mutable_grad();
  if (grad.defined() && grad.requires_grad()) grad = grad.detach();
  if (!grad.defined()) {
    grad = at::zeros_like(tensor, tensor.options().requires_grad(false));
  }
  if (places_[parameter].defined()) copy_gradient(places_[parameter], grad);
}

BucketFuture InPlaceExchange::start(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  at::Tensor data =
      bucket.flat.defined() ? bucket.flat : parameters_[bucket.parameters.front()].tensor.grad();
  if (!weight().equal) {
    const at::NoGradGuard no_grad;
    weight().scale == 0 ? data.zero_() : data.mul_(weight().scale);
  }
  std::vector<at::Tensor> message = {data};
  c10d::AllreduceOptions options;
  options.reduceOp = weight().equal ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  return group_.backend()->allreduce(message, options);
}

void InPlaceExchange::finish(const std::vector<bool>& untouched) {
  const at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    wait(index);
    if (!buckets_[index].flat.defined()) continue;
    for (const std::size_t parameter : buckets_[index].parameters) {
      copy_gradient(parameters_[parameter].tensor.grad(), places_[parameter]);
    }
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
