#include "rondo/parallel/ddp/bucketed_exchange.h"

#include <ATen/ScalarOps.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/ddp/bucket.h"

namespace rondo {
namespace {

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset();
}

}  // namespace

BucketedExchange::BucketedExchange(std::vector<ModelTensor> parameters, Group group,
                                   const DdpOptions& options, CommHook hook)
    : GradientExchange(std::move(parameters), std::move(group)),
      bucket_bytes_(options.bucket_bytes.value_or(MiB(25))),
      first_bucket_bytes_(options.first_bucket_bytes.value_or(options.bucket_bytes.value_or(MiB(1)))),
      as_view_(options.gradient_as_bucket_view),
      hook_(std::move(hook)),
      in_rank_order_(group_.traits().deterministic),
      places_(parameters_.size()),
      saved_(parameters_.size()) {}

BucketedExchange::~BucketedExchange() { abandon(); }

void BucketedExchange::set_order(std::span<const std::size_t> order) {
  const at::NoGradGuard no_grad;
  buckets_.clear();
  BucketPlan plan = plan_buckets(gradient_specs(parameters_), order, first_bucket_bytes_, bucket_bytes_);
  set_buckets(plan);
  for (std::vector<std::size_t>& members : plan) {
    const MemoryScope scope(MemoryCategory::gradients, kRootMemoryUnit);  // `.grad` will be views of it
    at::Tensor flat = make_bucket(parameters_, members, places_);
    buckets_.push_back({std::move(members), std::move(flat)});
  }
}

void BucketedExchange::gradient_ready(std::size_t parameter) {
  copy_in(parameter);
  // What autograd made is not needed any more: otherwise the model's gradients would be there twice.
  at::Tensor& grad = parameters_[parameter].tensor.mutable_grad();
  if (as_view_ && grad.defined()) grad = places_[parameter];
}

void BucketedExchange::gradient_missing(std::size_t parameter) {
  const at::Tensor& grad = parameters_[parameter].tensor.grad();
  if (grad.defined()) saved_[parameter] = same_memory(grad, places_[parameter]) ? grad.clone() : grad;
  gradient_ready(parameter);
}

void BucketedExchange::begin_backward(WeightSource weight) {
  GradientExchange::begin_backward(std::move(weight));
  factor_.reset();
}

const at::Tensor& BucketedExchange::factor() {
  if (!factor_.defined()) {
    double value = weight().scale;
    if (engine_divides()) {
      value = 1;
    } else if (hook_.run) {
      // The hook divides by the number of ranks.
      value = weight().equal ? 1 : weight().scale * group_.size();
    }
    factor_ = at::native::wrapped_scalar_tensor(value);
  }
  return factor_;
}

BucketFuture BucketedExchange::start(std::size_t bucket) {
  const at::Tensor& flat = buckets_[bucket].flat;
  if (hook_.run) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> members;
    for (const std::size_t parameter : buckets_[bucket].parameters) {
      members.push_back(parameters_[parameter].tensor);
    }
    GradBucket view(bucket, bucket + 1 == buckets_.size(), flat, std::move(members),
                    buckets_[bucket].parameters);
    return hook_.run(view);
  }
  std::vector<at::Tensor> message = {flat.is_complex() ? at::view_as_real(flat) : flat};
  c10d::AllreduceOptions options;
  if (engine_divides()) options.reduceOp = c10d::ReduceOp::AVG;
  return group_.backend()->allreduce(message, options);
}

void BucketedExchange::copy_in(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor& grad = parameters_[parameter].tensor.grad();
  at::Tensor& place = places_[parameter];
  if (!grad.defined() || weight().scale == 0) {
    place.zero_();
  } else if (same_memory(grad, place)) {
    if (factor().item<double>() != 1) place.mul_(factor());
  } else {
    // Scaling while copying saves a pass, and scaling before the sum keeps half-precision sums in range.
    at::mul_out(place, grad.requires_grad() ? grad.detach() : grad, factor());
  }
}

void BucketedExchange::finish(const std::vector<bool>& untouched) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    const at::Tensor result = wait(index);
    if (hook_.run) take_result(index, result);
    for (const std::size_t parameter : buckets_[index].parameters) {
      if (!untouched[parameter]) {
        copy_out(parameter);
      } else if (saved_[parameter].defined()) {
        parameters_[parameter].tensor.mutable_grad() = saved_[parameter];
      }
      saved_[parameter].reset();
    }
  }
}

void BucketedExchange::take_result(std::size_t bucket, const at::Tensor& result) {
  const at::NoGradGuard no_grad;
  at::Tensor& flat = buckets_[bucket].flat;
  if (!result.defined() || result.numel() != flat.numel()) {
    throw UsageError(str("communication hook '", hook_.name, "' gave ",
                         result.defined() ? str(result.numel(), " elements") : std::string("no tensor"),
                         " for a bucket of ", flat.numel()));
  }
  if (!same_memory(result, flat)) flat.copy_(result.view({-1}));
}

void BucketedExchange::copy_out(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  at::Tensor& grad = parameters_[parameter].tensor.mutable_grad();
  const at::Tensor& place = places_[parameter];
  if (as_view_) {
    if (!grad.defined() || !same_memory(grad, place)) grad = place;
  } else if (grad.defined() && !grad.requires_grad()) {
    grad.copy_(place);
  } else {
    grad = place.clone();
  }
}

void BucketedExchange::abandon() noexcept {
  GradientExchange::abandon();
  for (at::Tensor& gradient : saved_) gradient.reset();
}

}  // namespace rondo
