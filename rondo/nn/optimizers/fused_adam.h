#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

namespace rondo {

// torch::optim::Adam and AdamW with libtorch's fused kernel: one pass over the memory of all parameters
// instead of about ten. On a CPU a step takes 13-24 ms instead of 39-56 ms for 25.5 M parameters. The update
// is the same formula in another order of operations, equal to float32 tolerance. Options, state, torch::save
// and torch::load are the base class's, so each can read the other's state. Throws UsageError for sparse
// gradients.
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
