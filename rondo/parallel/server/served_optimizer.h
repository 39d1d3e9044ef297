#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>

#include "rondo/server/optimizer.h"

namespace rondo {

// What a server is told of an optimizer's parameter group. Throws UsageError for an optimizer that servers
// have not, naming it: they have SGD, Adam, AdamW (without amsgrad) and Adagrad.
server::OptimizerSpec served_optimizer(const torch::optim::Optimizer& optimizer, std::size_t group);

// What the optimizer keeps for a parameter, as the slots of a server: float32 tensors of the parameter's
// shape.
struct ServedState {
  at::Tensor slots[server::kMostSlots];
  std::uint64_t updates = 0;
};
// Sets it, as if the optimizer had made that many updates itself.
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const ServedState& state);
// Empty slots and 0 updates where it has made none.
ServedState state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

}  // namespace rondo
