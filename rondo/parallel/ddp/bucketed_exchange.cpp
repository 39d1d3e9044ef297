#include "rondo/parallel/ddp/bucketed_exchange.h"

#include <ATen/ScalarOps.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/ddp/bucket.h"

namespace rondo {
namespace {

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset();
}

bool adds_in_rank_order(const c10d::Backend& engine) {
  const auto* messages = dynamic_cast<const HierarchicalBackend*>(&engine);
  return messages != nullptr && messages->reproducible();
}

}  // namespace

BucketedExchange::BucketedExchange(std::vector<ModelTensor> parameters, Group group,
                                   const DdpOptions& options, CommHook hook)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      bucket_bytes_(options.bucket_bytes.value_or(MiB(25))),
      first_bucket_bytes_(options.first_bucket_bytes.value_or(options.bucket_bytes.value_or(MiB(1)))),
      as_view_(options.gradient_as_bucket_view),
      hook_(std::move(hook)),
      in_rank_order_(adds_in_rank_order(*group_.backend())),
      places_(parameters_.size()),
      bucket_of_(parameters_.size()),
      saved_(parameters_.size()),
      queue_([this](std::size_t bucket) { return start(bucket); }, place_of(group_)) {}

BucketedExchange::~BucketedExchange() { abandon(); }

void BucketedExchange::set_order(std::span<const std::size_t> order) {
  const at::NoGradGuard no_grad;
  buckets_.clear();
  std::vector<ReductionQueue::Unit> units;
  for (std::vector<std::size_t>& members :
       plan_buckets(gradient_specs(parameters_), order, first_bucket_bytes_, bucket_bytes_)) {
    const MemoryScope scope(MemoryCategory::gradients, kRootMemoryUnit);  // `.grad` will be views of it
    at::Tensor flat = make_bucket(parameters_, members, places_);
    for (const std::size_t parameter : members) bucket_of_[parameter] = buckets_.size();
    units.push_back({members.size(), Bytes{flat.nbytes()}, name_range(parameters_, members)});
    buckets_.push_back({std::move(members), std::move(flat)});
  }
  queue_.set_units(std::move(units));
}

void BucketedExchange::begin_backward(const GradientWeight& weight) {
  weight_ = weight;
  factor_ = at::native::wrapped_scalar_tensor(factor());
  queue_.begin();
}

void BucketedExchange::gradient_ready(std::size_t parameter) {
  copy_in(parameter);
  // What autograd made is not needed any more: otherwise the model's gradients would be there twice.
  at::Tensor& grad = parameters_[parameter].tensor.mutable_grad();
  if (as_view_ && grad.defined()) grad = places_[parameter];
  queue_.gradient_ready(bucket_of_[parameter]);
}

void BucketedExchange::gradient_missing(std::size_t parameter) {
  const at::Tensor& grad = parameters_[parameter].tensor.grad();
  if (grad.defined()) saved_[parameter] = same_memory(grad, places_[parameter]) ? grad.clone() : grad;
  gradient_ready(parameter);
}

double BucketedExchange::factor() const {
  if (engine_divides()) return 1;
  if (!hook_.run) return weight_.scale;
  // The hook divides by the number of ranks.
  return weight_.equal ? 1 : weight_.scale * group_.size();
}

BucketFuture BucketedExchange::start(std::size_t bucket) {
  const at::Tensor& flat = buckets_[bucket].flat;
  if (hook_.run) {
    const MemoryScope scope(MemoryCategory::communication, kRootMemoryUnit);
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
  if (!grad.defined() || weight_.scale == 0) {
    place.zero_();
  } else if (same_memory(grad, place)) {
    if ((!hook_.run && !engine_divides()) || factor() != 1) place.mul_(factor_);
  } else {
    // Scaling while copying saves a pass, and scaling before the sum keeps half-precision sums in range.
    at::mul_out(place, grad.requires_grad() ? grad.detach() : grad, factor_);
  }
}

void BucketedExchange::finish(const std::vector<bool>& untouched) {
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    const at::Tensor result = queue_.wait(index);
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
  queue_.abandon();
  for (at::Tensor& gradient : saved_) gradient.reset();
}

}  // namespace rondo
