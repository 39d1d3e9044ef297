#include "rondo/parallel/sharded/in_place_gradients.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <numeric>

#include "rondo/backend/accounting.h"

namespace rondo {

InPlaceGradients::InPlaceGradients(const std::string& unit, Sharding sharding,
                                   const FlatParameters& parameters, const GradientCarriers& carriers,
                                   const Group& group)
    : unit_(memory_unit(unit)),
      sharding_(sharding),
      parameters_(parameters),
      carriers_(carriers),
      rank_(group.rank()),
      exchange_(carriers.tensors(), group, {}) {
  std::vector<std::size_t> order(parameters.parameters().size());
  std::iota(order.rbegin(), order.rend(), 0);
  exchange_.set_order(order);
}

void InPlaceGradients::launch(const GradientWeight& weight, const BlockOrder& /*order*/) {
  exchange_.begin_backward(weight);
  for (std::size_t i = carriers_.tensors().size(); i-- > 0;) {
    if (carriers_.tensors()[i].tensor.grad().defined()) {
      exchange_.gradient_ready(i);
    } else {
      exchange_.gradient_missing(i);
    }
  }
  exchange_.start_all();
  launched_ = true;
}

void InPlaceGradients::finish(bool accumulate) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::gradients, unit_);
  const std::vector<ModelTensor>& parameters = carriers_.tensors();
  const at::ScalarType dtype = parameters_.master_dtype();
  exchange_.finish(std::vector<bool>(parameters.size(), false));
  launched_ = false;
  for (const BucketTrace& bucket : exchange_.trace()) {
    records_.push_back({.collective = "all_reduce",
                        .index = records_.size(),
                        .bytes = bucket.bytes,
                        .queued_ns = bucket.ready_ns,
                        .started_ns = bucket.launched_ns,
                        .finished_ns = bucket.finished_ns,
                        .waited_ns = bucket.waited_ns,
                        .exposed_ns = bucket.exposed_ns});
  }
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
    const at::Tensor part = std::exchange(grad, {}).flatten().narrow(0, own.begin, own.size());
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
