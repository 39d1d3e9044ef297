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
// the model keeps only its inputs after forward; what its backward needs is computed again when backward gets
// there.
namespace rondo {

// A function of tensors that can be called again with the same result.
using CheckpointedFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Calls `function(inputs)` and keeps none of its intermediate results: backward calls it again, with the
// random generators and autocast as they were, and computes the gradients from that. Same results and
// gradients, bit for bit, as without; parameters and other tensors that the function captures get theirs too.
// It must compute the same from the same inputs, and not change them in place: UsageError, from here or from
// backward. What it changes besides (counters, running averages) changes twice. Gradients of gradients are
// not supported. Any thread.
std::vector<at::Tensor> checkpoint(const CheckpointedFunction& function, std::vector<at::Tensor> inputs);
// The same for a function of one tensor.
at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& input);

// Whether this thread is computing forward again for backward. Units inside a checkpointed one see
// pre_forward and post_forward a second time then; the checkpointed unit itself sees pre_recompute and
// post_recompute.
bool recomputing();

// Switches checkpointing on for units of `model` and off for the others: "none", "all", "every-N" (the first
// of each N units, in the order of forward) or names of units joined by commas. Units inside a unit that is
// chosen are recomputed with it and not chosen by "all" and "every-N". Returns the names of those that are
// on. Throws UsageError for an unknown name, naming the units that there are, and for a model without units.
std::vector<std::string> checkpoint_activations(const torch::nn::Module& model, std::string_view which);

// One call of a function that is to be checkpointed, for callers whose function has any type; checkpoint()
// and Unit are made of it.
class CheckpointedCall {
 public:
  // `unit` may be null. `inputs` may hold undefined tensors.
  CheckpointedCall(std::vector<at::Tensor> inputs, UnitState* unit);

  // What to compute with, in place of the inputs.
  const std::vector<at::Tensor>& inputs() const { return twins_; }
  // After forward: drops what it recorded for backward, and gives each output a twin whose backward calls
  // `again` with inputs like those above. `again` must return tensors for `outputs`, in their order.
  void finish(const std::vector<at::Tensor*>& outputs, CheckpointedFunction again);

 private:
  std::vector<at::Tensor> given_;
  std::vector<at::Tensor> twins_;
  std::vector<std::uint32_t> versions_;
  UnitState* unit_;
  ForwardState state_;
  ForwardState::WithoutCastCache without_cast_cache_;
  torch::autograd::Edge source_;  // where gradients of twins_ arrive
  std::uint64_t first_node_;      // sequence number of the first node that forward records
};

}  // namespace rondo
