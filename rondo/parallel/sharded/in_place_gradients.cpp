#include "rondo/parallel/sharded/in_place_gradients.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/memory/tracked_memory.h"

namespace rondo {

InPlaceGradients::InPlaceGradients(const std::string& unit, Sharding sharding,
                                   const FlatParameters& parameters, const GradientBuffers& gradient_buffers,
                                   const Group& group, CommunicationQueue& queue)
    : name_(unit),
      unit_(memory_unit(unit)),
      sharding_(sharding),
      parameters_(parameters),
      gradient_buffers_(gradient_buffers),
      rank_(group.rank()),
      queue_(queue) {
  const std::vector<ModelTensor>& gradients = gradient_buffers.tensors();
  for (Bucket& bucket : make_buckets(gradients, plan_in_place(gradients, last_first(gradients.size()))))
    transfers_.push_back(std::make_unique<InPlaceAllReduce>(std::move(bucket), weight_source_, group));
}

void InPlaceGradients::launch(const GradientWeight& weight, const BlockOrder& order) {
  weight_ = weight;
  for (const auto& transfer : transfers_) {
    const Bucket& bucket = transfer->bucket();
    for (std::size_t member = 0; member < bucket.numbers.size(); ++member) transfer->take(member);
    const BlockOrder::Place place = order.of(bucket.index, transfers_.size());
    tickets_.push_back(queue_.submit({.collective = "all_reduce",
                                      .unit = name_,
                                      .index = bucket.index,
                                      .bytes = bucket.bytes(),
                                      .priority = place.priority,
                                      .start = [&transfer = *transfer] { return transfer.start(); },
                                      .slot = place.slot}));
  }
}

void InPlaceGradients::finish(bool accumulate) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::gradients, unit_);
  const std::vector<ModelTensor>& parameters = gradient_buffers_.tensors();
  const at::ScalarType dtype = parameters_.master_dtype();
  for (std::size_t i = 0; i < tickets_.size(); ++i)
    transfers_[i]->finish(queue_.wait(tickets_[i]), /*untouched=*/{});
  tickets_.clear();
  accumulate = accumulate && !result_.empty();
  if (!accumulate) result_.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& grad = parameters[i].tensor.mutable_grad();
    label_memory(grad, {MemoryCategory::gradients, unit_});
    if (sharding_ == Sharding::ddp) {
      result_[i] = std::exchange(grad, {}).to(dtype);
      continue;
    }
    const ElementRange own = parameters_.layout().slice(i, rank_).of_parameter;
    const at::Tensor flat = std::exchange(grad, {}).flatten().narrow(0, own.begin, own.size());
    const at::Tensor part = parameters_.shaped(flat, i);
    if (accumulate) {
      result_[i].add_(part);
    } else if (part.scalar_type() != dtype) {
      result_[i] = part.to(dtype);
    } else {
      // ZeRO-1 keeps the whole gradient and looks at its part; the others free what they do not own.
      result_[i] = sharding_ == Sharding::zero1 ? part.variable_data() : part.clone();
    }
  }
}

}  // namespace rondo
