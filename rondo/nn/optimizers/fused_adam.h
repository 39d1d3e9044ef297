#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

namespace rondo {

// torch::optim::Adam and AdamW with libtorch's fused kernel: one pass over the memory of all parameters
// instead of about ten (on a CPU 13-24 ms a step against 39-56 ms for 25.5 M parameters). The update is the
// same formula in another order of operations, equal to float32 tolerance. Options, state, torch::save and
// torch::load are the base class's, so either reads the other's state. Sparse gradients are an error.
class FusedAdam final : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  at::Tensor step(LossClosure closure = nullptr) override;
};

class FusedAdamW final : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  at::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace rondo
