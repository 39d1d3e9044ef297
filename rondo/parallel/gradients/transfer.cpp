#include "rondo/parallel/gradients/transfer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>

#include "rondo/memory/scope.h"

namespace rondo {
namespace {

// Tensors of at least this size are in registered memory (see register_cpu_allocations).
constexpr Bytes kLarge = KiB(64);

bool is_large(const ModelTensor& parameter) { return Bytes{parameter.tensor.nbytes()} >= kLarge; }

}  // namespace

void Transfer::launch(CommunicationQueue& queue, const SegmentOrder& order,
                      const CommunicationSegment& common) {
  queue_ = &queue;
  launched_ = true;
  const std::size_t count = segments();
  for (std::size_t segment = 0; segment < count; ++segment) {
    const std::size_t index = bucket_.index * count + segment;
    const auto [slot, priority] = order.of(index, bucket_.count * count);
    std::optional<CommunicationQueue::Ticket> last;
    for (TransferStep& step : steps(segment)) {
      CommunicationSegment queued = common;
      queued.collective = step.collective;
      queued.index = index;
      queued.bytes = step.bytes;
      queued.priority = priority;
      queued.after = last;
      queued.start = std::move(step.start);
      queued.slot = slot;
      last = queue.submit(std::move(queued));
    }
    if (last) tickets_.push_back(*last);
  }
}

bool Transfer::arrived() {
  return std::all_of(tickets_.begin(), tickets_.end(),
                     [&](CommunicationQueue::Ticket ticket) { return queue_->finished(ticket); });
}

void Transfer::finish(const std::vector<bool>& untouched) {
  at::Tensor result;
  for (const CommunicationQueue::Ticket ticket : tickets_) result = queue_->wait(ticket);
  tickets_.clear();
  launched_ = false;
  store(result, untouched);
}

void Transfer::abandon() noexcept {
  tickets_.clear();
  launched_ = false;
  discard();
}

InPlaceAllReduce::InPlaceAllReduce(Bucket bucket, const WeightSource& weight, Group group)
    : Transfer(std::move(bucket), weight), group_(std::move(group)) {
  const at::NoGradGuard no_grad;
  const std::vector<ModelTensor>& parameters = this->bucket().parameters;
  if (is_large(parameters.front())) return;
  const MemoryScope scope(MemoryCategory::communication, kRootMemoryUnit);
  small_.emplace(parameters, /*registered=*/true);
}

void InPlaceAllReduce::take(std::size_t member) {
  const at::NoGradGuard no_grad;
  const at::Tensor& tensor = bucket().parameters[member].tensor;
  at::Tensor& grad = tensor.mutable_grad();
  if (grad.defined() && grad.requires_grad()) grad = grad.detach();
  if (!grad.defined()) grad = at::zeros_like(tensor, tensor.options().requires_grad(false));
  if (small_) copy_gradient(small_->places[member], grad);
}

void InPlaceAllReduce::take_missing(std::size_t member) {
  const at::Tensor& grad = bucket().parameters[member].tensor.grad();
  missing_.push_back({member, grad.defined() ? grad.clone() : at::Tensor()});
  take(member);
}

std::vector<TransferStep> InPlaceAllReduce::steps(std::size_t /*segment*/) {
  std::vector<TransferStep> steps(1);
  steps.front() = {"all_reduce", bucket().bytes(), std::bind_front(&InPlaceAllReduce::start, this)};
  return steps;
}

BucketFuture InPlaceAllReduce::start() {
  at::Tensor data = small_ ? small_->flat : bucket().parameters.front().tensor.grad();
  const GradientWeight& weight = this->weight();
  if (!weight.equal) {
    const at::NoGradGuard no_grad;
    weight.scale == 0 ? data.zero_() : data.mul_(weight.scale);
  }
  std::vector<at::Tensor> message = {data};
  c10d::AllreduceOptions options;
  options.reduceOp = weight.equal ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  return group_.backend()->allreduce(message, options);
}

void InPlaceAllReduce::store(const at::Tensor& /*result*/, const std::vector<bool>& untouched) {
  const at::NoGradGuard no_grad;
  const std::vector<ModelTensor>& parameters = bucket().parameters;
  for (std::size_t member = 0; small_ && member < parameters.size(); ++member)
    copy_gradient(parameters[member].tensor.grad(), small_->places[member]);
  for (Missing& each : missing_) {
    if (is_untouched(each.member, untouched))
      parameters[each.member].tensor.mutable_grad() = std::move(each.before);
  }
  missing_.clear();
}

BucketPlan plan_in_place(const std::vector<ModelTensor>& parameters, std::span<const std::size_t> order,
                         Bytes bucket_bytes) {
  BucketPlan plan;
  std::vector<std::size_t> small;
  std::vector<std::size_t> position(parameters.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    position[order[i]] = i;
    if (is_large(parameters[order[i]])) {
      plan.push_back({order[i]});
    } else {
      small.push_back(order[i]);
    }
  }
  const Bytes size = std::min(kLarge, bucket_bytes);
  for (std::vector<std::size_t>& bucket : plan_buckets(gradient_specs(parameters), small, size, size))
    plan.push_back(std::move(bucket));
  // A bucket is launched when its last gradient is expected.
  std::sort(plan.begin(), plan.end(),
            [&](const auto& a, const auto& b) { return position[a.back()] < position[b.back()]; });
  return plan;
}

std::uint64_t bytes_beside_gradients(const std::vector<ModelTensor>& parameters) {
  std::uint64_t bytes = 0;
  for (const ModelTensor& parameter : parameters) {
    if (parameter.tensor.requires_grad() && !is_large(parameter)) bytes += parameter.tensor.nbytes();
  }
  return bytes;
}

}  // namespace rondo
