#include "rondo/parallel/sharded/in_place_gradients.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <numeric>

namespace rondo {
InPlaceGradients::InPlaceGradients(Sharding sharding, const FlatParameters& parameters, const Group& group)
    : sharding_(sharding),
      parameters_(parameters),
      rank_(group.rank()),
      exchange_(parameters.parameters(), group, {}) {
  std::vector<std::size_t> order(parameters.parameters().size());
  std::iota(order.rbegin(), order.rend(), 0);
  exchange_.set_order(order);
}

void InPlaceGradients::launch(const GradientWeight& weight, const BlockOrder& /*order*/) {
  exchange_.begin_backward(weight);
  for (std::size_t i = parameters_.parameters().size(); i-- > 0;) {
    if (parameters_.parameters()[i].tensor.grad().defined()) {
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
  const std::vector<ModelTensor>& parameters = parameters_.parameters();
  exchange_.finish(std::vector<bool>(parameters.size(), false));
  launched_ = false;
  accumulate = accumulate && !result_.empty();
  if (!accumulate) result_.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& grad = parameters[i].tensor.mutable_grad();
    if (sharding_ == Sharding::ddp) {
      result_[i] = std::exchange(grad, {});
      continue;
    }
    const ElementRange own = parameters_.layout().slice(i, rank_).of_parameter;
    const at::Tensor part = std::exchange(grad, {}).flatten().narrow(0, own.begin, own.size());
    if (accumulate) {
      result_[i].add_(part);
    } else {
      // ZeRO-1 keeps the whole gradient and looks at its part; the others free what they do not own.
      result_[i] = sharding_ == Sharding::zero1 ? part.variable_data() : part.clone();
    }
  }
}

}  // namespace rondo
