#include "rondo/parallel/ddp/in_place_buckets.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/memory/scope.h"
#include "rondo/parallel/ddp/bucket.h"

namespace rondo {
namespace {

// From this size on tensors are in registered memory, see register_cpu_allocations.
constexpr Bytes kLarge = KiB(64);

bool is_large(const ModelTensor& parameter) { return Bytes{parameter.tensor.nbytes()} >= kLarge; }

}  // namespace

InPlaceBuckets::InPlaceBuckets(const std::vector<ModelTensor>& parameters, Group group,
                               std::span<const std::size_t> order, Bytes bucket_bytes)
    : parameters_(parameters), group_(std::move(group)), places_(parameters.size()) {
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> small;
  std::vector<std::size_t> position(parameters_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    position[order[i]] = i;
    if (is_large(parameters_[order[i]])) {
      members_.push_back({order[i]});
    } else {
      small.push_back(order[i]);
    }
  }
  const Bytes size = std::min(kLarge, bucket_bytes);
  for (std::vector<std::size_t>& bucket : plan_buckets(gradient_specs(parameters_), small, size, size))
    members_.push_back(std::move(bucket));
  // A bucket's turn comes when its last gradient is due.
  std::sort(members_.begin(), members_.end(),
            [&](const auto& a, const auto& b) { return position[a.back()] < position[b.back()]; });
  for (const std::vector<std::size_t>& members : members_) {
    const MemoryScope scope(MemoryCategory::communication, kRootMemoryUnit);
    flats_.push_back(is_large(parameters_[members.front()])
                         ? at::Tensor()
                         : make_bucket(parameters_, members, places_, /*registered=*/true));
  }
}

std::uint64_t InPlaceBuckets::flat_bytes(const std::vector<ModelTensor>& parameters) {
  std::uint64_t bytes = 0;
  for (const ModelTensor& parameter : parameters) {
    if (parameter.tensor.requires_grad() && !is_large(parameter)) bytes += parameter.tensor.nbytes();
  }
  return bytes;
}

Bytes InPlaceBuckets::bytes(std::size_t bucket) const {
  Bytes bytes;
  for (const std::size_t parameter : members_[bucket])
    bytes = bytes + Bytes{parameters_[parameter].tensor.nbytes()};
  return bytes;
}

void InPlaceBuckets::take(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = parameters_[parameter].tensor;
  at::Tensor& grad = tensor.mutable_grad();
  if (grad.defined() && grad.requires_grad()) grad = grad.detach();
  if (!grad.defined()) grad = at::zeros_like(tensor, tensor.options().requires_grad(false));
  if (places_[parameter].defined()) copy_gradient(places_[parameter], grad);
}

BucketFuture InPlaceBuckets::start(std::size_t bucket, const GradientWeight& weight) {
  at::Tensor data =
      flats_[bucket].defined() ? flats_[bucket] : parameters_[members_[bucket].front()].tensor.grad();
  if (!weight.equal) {
    const at::NoGradGuard no_grad;
    weight.scale == 0 ? data.zero_() : data.mul_(weight.scale);
  }
  std::vector<at::Tensor> message = {data};
  c10d::AllreduceOptions options;
  options.reduceOp = weight.equal ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  return group_.backend()->allreduce(message, options);
}

void InPlaceBuckets::bring_back(std::size_t bucket) {
  if (!flats_[bucket].defined()) return;
  const at::NoGradGuard no_grad;
  for (const std::size_t parameter : members_[bucket])
    copy_gradient(parameters_[parameter].tensor.grad(), places_[parameter]);
}

}  // namespace rondo
