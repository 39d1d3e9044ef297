#include "rondo/parallel/sharded/unit_gradients.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/backend/memory/tracked_memory.h"

namespace rondo {

UnitGradients::UnitGradients(Place place, const FlatParameters& parameters,
                             const GradientBuffers& gradient_buffers, CommunicationQueue& queue,
                             BufferPool& buffers)
    : place_(std::move(place)),
      unit_(memory_unit(place_.unit)),
      parameters_(parameters),
      gradient_buffers_(gradient_buffers),
      queue_(queue),
      buffers_(buffers) {
  const std::vector<ModelTensor>& gradients = gradient_buffers.tensors();
  const std::vector<std::size_t> order = last_first(gradients.size());
  if (place_.in_place) {
    for (Bucket& bucket : make_buckets(gradients, plan_in_place(gradients, order))) {
      transfers_.push_back(
          std::make_unique<InPlaceAllReduce>(std::move(bucket), weight_source_, place_.shard_group));
    }
    return;
  }
  ReduceScatter::Options options{.shards = place_.shard_group,
                                 .replicas = place_.replica_group,
                                 .gathers = place_.sharding == Sharding::ddp,
                                 .keeps_buffer = place_.sharding == Sharding::zero1,
                                 .codec = place_.codec,
                                 .unit = unit_};
  auto scatter = std::make_unique<ReduceScatter>(make_buckets(gradients, {order}).front(), weight_source_,
                                                 parameters_.layout(), buffers_, std::move(options));
  scatter_ = scatter.get();
  transfers_.push_back(std::move(scatter));
}

void UnitGradients::launch(const GradientWeight& weight, const SegmentOrder& order) {
  weight_ = weight;
  for (const auto& transfer : transfers_) {
    transfer->begin();
    for (std::size_t member = 0; member < transfer->bucket().numbers.size(); ++member) transfer->take(member);
    transfer->launch(queue_, order, {.unit = place_.unit});
  }
}

bool UnitGradients::arrived() {
  return std::all_of(transfers_.begin(), transfers_.end(),
                     [](const auto& transfer) { return transfer->arrived(); });
}

at::Tensor UnitGradients::own_part(const at::Tensor& sum, std::size_t parameter) const {
  if (place_.sharding == Sharding::ddp) return sum;
  if (scatter_ != nullptr) return parameters_.shaped(sum, parameter);
  const ElementRange own = parameters_.layout().slice(parameter, place_.shard_group.rank()).of_parameter;
  return parameters_.shaped(sum.flatten().narrow(0, own.begin, own.size()), parameter);
}

void UnitGradients::finish(bool accumulate) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::gradients, unit_);
  for (const auto& transfer : transfers_) transfer->finish(/*untouched=*/{});
  const std::vector<ModelTensor>& parameters = gradient_buffers_.tensors();
  const bool converts = gradient_buffers_.dtype() != parameters_.master_dtype();
  // Frees the parts of whole gradients that other ranks own. ZeRO-1 keeps whole gradients.
  const bool copies = scatter_ == nullptr && shards_gradients(place_.sharding);
  accumulate = accumulate && !result_.empty();
  result_.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor sum = std::exchange(parameters[i].tensor.mutable_grad(), {});
    label_memory(sum, {MemoryCategory::gradients, unit_});
    const at::Tensor part = own_part(sum, i);
    if (accumulate) {
      result_[i].add_(part);
    } else if (converts) {
      result_[i] = part.to(parameters_.master_dtype());
    } else {
      result_[i] = copies ? part.clone() : part.variable_data();
    }
  }
  if (scatter_ == nullptr) return;
  const at::Tensor sums = scatter_->take_sums();
  if (sums.defined() && (accumulate || converts)) buffers_.give_back(sums);
}

void UnitGradients::recycle() {
  if (scatter_ != nullptr) scatter_->recycle();
}

CommState UnitGradients::memory() const { return scatter_ != nullptr ? scatter_->memory() : CommState(); }

}  // namespace rondo
