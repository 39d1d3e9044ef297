#include "rondo/parallel/ddp/flat_all_reduce.h"

#include <ATen/ScalarOps.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"

namespace rondo {
namespace {

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset();
}

// Allocates the bucket of which `.grad` will be views.
FlatBucket gradient_memory(const std::vector<ModelTensor>& parameters) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::gradients, kRootMemoryUnit);
  return FlatBucket(parameters);
}

}  // namespace

FlatAllReduce::FlatAllReduce(Bucket bucket, const WeightSource& weight, Group group, const CommHook& hook,
                             bool as_view)
    : Transfer(std::move(bucket), weight),
      group_(std::move(group)),
      hook_(hook),
      as_view_(as_view),
      in_rank_order_(group_.traits().deterministic),
      memory_(gradient_memory(this->bucket().parameters)),
      saved_(this->bucket().parameters.size()) {}

void FlatAllReduce::take(std::size_t member) {
  copy_in(member);
  // Releases the tensor that autograd allocated, which would otherwise double the memory of gradients.
  at::Tensor& gradient = grad(member);
  if (as_view_ && gradient.defined()) gradient = memory_.places[member];
}

void FlatAllReduce::take_missing(std::size_t member) {
  const at::Tensor& before = grad(member);
  if (before.defined())
    saved_[member] = same_memory(before, memory_.places[member]) ? before.clone() : before;
  take(member);
}

const at::Tensor& FlatAllReduce::factor() {
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

std::vector<TransferStep> FlatAllReduce::steps(std::size_t /*segment*/) {
  std::vector<TransferStep> steps(1);
  steps.front() = {"all_reduce", bucket().bytes(), std::bind_front(&FlatAllReduce::start, this)};
  return steps;
}

BucketFuture FlatAllReduce::start() {
  const at::Tensor& flat = memory_.flat;
  if (hook_.run) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> members;
    const bool is_last = bucket().index + 1 == bucket().count;
    for (const ModelTensor& parameter : bucket().parameters) members.push_back(parameter.tensor);
    GradBucket view(bucket().index, is_last, flat, std::move(members), bucket().numbers);
    return hook_.run(view);
  }
  std::vector<at::Tensor> message = {flat.is_complex() ? at::view_as_real(flat) : flat};
  c10d::AllreduceOptions options;
  if (engine_divides()) options.reduceOp = c10d::ReduceOp::AVG;
  return group_.backend()->allreduce(message, options);
}

void FlatAllReduce::copy_in(std::size_t member) {
  const at::NoGradGuard no_grad;
  const at::Tensor& gradient = grad(member);
  at::Tensor& place = memory_.places[member];
  if (!gradient.defined() || weight().scale == 0) {
    place.zero_();
  } else if (same_memory(gradient, place)) {
    if (factor().item<double>() != 1) place.mul_(factor());
  } else {
    // Scaling while copying saves a pass over the memory. Scaling before the sum keeps half-precision sums in
    // range.
    at::mul_out(place, gradient.requires_grad() ? gradient.detach() : gradient, factor());
  }
}

void FlatAllReduce::store(const at::Tensor& result, const std::vector<bool>& untouched) {
  if (hook_.run) take_result(result);
  for (std::size_t member = 0; member < saved_.size(); ++member) {
    if (!is_untouched(member, untouched)) {
      copy_out(member);
    } else if (saved_[member].defined()) {
      grad(member) = saved_[member];
    }
    saved_[member].reset();
  }
}

void FlatAllReduce::take_result(const at::Tensor& result) {
  const at::NoGradGuard no_grad;
  at::Tensor& flat = memory_.flat;
  if (!result.defined() || result.numel() != flat.numel()) {
    throw UsageError(str("communication hook '", hook_.name, "' gave ",
                         result.defined() ? str(result.numel(), " elements") : std::string("no tensor"),
                         " for a bucket of ", flat.numel()));
  }
  if (!same_memory(result, flat)) flat.copy_(result.view({-1}));
}

void FlatAllReduce::copy_out(std::size_t member) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = grad(member);
  const at::Tensor& place = memory_.places[member];
  if (as_view_) {
    if (!gradient.defined() || !same_memory(gradient, place)) gradient = place;
  } else if (gradient.defined() && !gradient.requires_grad()) {
    gradient.copy_(place);
  } else {
    gradient = place.clone();
  }
}

void FlatAllReduce::discard() noexcept {
  for (at::Tensor& gradient : saved_) gradient.reset();
}

}  // namespace rondo
