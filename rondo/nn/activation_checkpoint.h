#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/nn/autograd_graph.h"
#include "rondo/nn/unit_state.h"

// Activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016): a part of
// the model keeps only its inputs after forward. Backward recomputes all else that it needs.
namespace rondo {

// A function of tensors that can be called again with the same result.
using CheckpointedFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Calls `function(inputs)` without keeping intermediate results. Backward calls it again, with the same state
// of random generators and autocast, and computes the gradients from that call. Results and gradients are
// bit-identical to those without checkpointing; parameters and other tensors that the function captures get
// their gradients too. The function must compute the same from the same inputs and must not change them in
// place; otherwise this call or backward throws UsageError. Other side effects (counters, running averages)
// happen twice. Gradients of gradients are not supported. Any thread.
std::vector<at::Tensor> checkpoint(const CheckpointedFunction& function, std::vector<at::Tensor> inputs);
// Checkpoints a function of one tensor.
at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& input);

// Returns whether this thread is recomputing forward for backward. Units inside a checkpointed unit then see
// pre_forward and post_forward a second time; the checkpointed unit itself sees pre_recompute and
// post_recompute.
bool recomputing();

// Enables checkpointing for the chosen units of `model` and disables it for the others. `which` is "none",
// "all", "every-N" (the first of each N units, in forward order) or names of units joined by commas. "all"
// and "every-N" choose outermost units only; inner units are recomputed with them. Returns the names of the
// chosen units. Throws UsageError for an unknown name, listing the units, and for a model without units.
std::vector<std::string> checkpoint_activations(const torch::nn::Module& model, std::string_view which);

// One call of a function of any type that is to be checkpointed; checkpoint() and Unit use it.
class CheckpointedCall {
 public:
  // `unit` may be null. `inputs` may hold undefined tensors.
  CheckpointedCall(std::vector<at::Tensor> inputs, UnitState* unit);

  // Returns the tensors to compute with instead of the inputs.
  const std::vector<at::Tensor>& inputs() const { return twins_; }
  // Drops the recorded graph after forward. Replaces each output by a twin whose backward calls `again` with
  // tensors like inputs(). `again` must return tensors for `outputs`, in their order.
  void finish(const std::vector<at::Tensor*>& outputs, CheckpointedFunction again);

 private:
  std::vector<at::Tensor> given_;
  std::vector<at::Tensor> twins_;
  std::vector<std::uint32_t> versions_;
  UnitState* unit_;
  ForwardState state_;
  ForwardState::WithoutCastCache without_cast_cache_;
  torch::autograd::Edge source_;  // destination of the gradients of twins_
  std::uint64_t first_node_;      // sequence number of the first node that forward records
};

}  // namespace rondo
