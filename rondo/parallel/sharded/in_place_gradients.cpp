#include "rondo/parallel/sharded/in_place_gradients.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <numeric>

#include "rondo/backend/memory/tracked_memory.h"

namespace rondo {

InPlaceGradients::InPlaceGradients(const std::string& unit, Sharding sharding,
                                   const FlatParameters& parameters, const GradientBuffers& gradient_buffers,
                                   const Group& group)
    : name_(unit),
      unit_(memory_unit(unit)),
      sharding_(sharding),
      parameters_(parameters),
      gradient_buffers_(gradient_buffers),
      rank_(group.rank()),
      exchange_(gradient_buffers.tensors(), group, {}) {
  std::vector<std::size_t> order(parameters.parameters().size());
  std::iota(order.rbegin(), order.rend(), 0);
  exchange_.set_order(order);
}

void InPlaceGradients::launch(const GradientWeight& weight, const BlockOrder& /*order*/) {
  exchange_.begin_backward([weight]() -> const GradientWeight& { return weight; });
  for (std::size_t i = gradient_buffers_.tensors().size(); i-- > 0;) {
    if (gradient_buffers_.tensors()[i].tensor.grad().defined()) {
      exchange_.gradient_ready(i);
    } else {
      exchange_.gradient_missing(i);
    }
  }
  for (std::size_t bucket = 0; bucket < exchange_.gradients().size(); ++bucket) exchange_.send(bucket);
  exchange_.start_all();
  launched_ = true;
}

void InPlaceGradients::finish(bool accumulate) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::gradients, unit_);
  const std::vector<ModelTensor>& parameters = gradient_buffers_.tensors();
  const at::ScalarType dtype = parameters_.master_dtype();
  exchange_.finish(std::vector<bool>(parameters.size(), false));
  launched_ = false;
  for (TraceSpan& span : exchange_.take_spans()) {
    span.unit = name_;
    span.bucket = static_cast<std::int64_t>(spans_.size());
    spans_.push_back(std::move(span));
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
