#pragma once

#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rondo/nn/layers.h"
#include "rondo/nn/model.h"

namespace rondo {

// A backward pass in two parts: gradients of the inputs first, because another rank waits for them, and
// gradients of the parameters later. The gradient that arrives where a parameter is used is kept, so the
// second part recomputes nothing. The cut of the graph follows PyTorch's stage_backward_input and
// stage_backward_weight. Not thread-safe.
class SplitBackward {
 public:
  // `outputs` must have been computed from `inputs` (leaves; those without requires_grad are ignored) and
  // `parameters`.
  SplitBackward(Tensors outputs, Tensors inputs, Tensors parameters);

  // Runs both parts at once. Returns the gradients of the inputs, undefined for an input without one, and
  // adds those of the parameters to their `.grad`. `output_gradients` has one entry per output, undefined for
  // ones.
  Tensors gradients(const Tensors& output_gradients);
  // Runs the first part and returns the gradients of the inputs. Frees nodes that the second part does not
  // need.
  Tensors input_gradients(const Tensors& output_gradients);
  // Runs the second part: adds the gradients of the parameters to their `.grad`, and frees the graph.
  void add_parameter_gradients();

 private:
  // A node on the path to the inputs from which gradients flow to parameters.
  struct Cut {
    std::shared_ptr<std::vector<at::Tensor>> arrived;  // gradients that the first part delivered to the node
    torch::autograd::Edge node;
    std::vector<std::size_t> parameters;
  };

  // Finds the cuts. Returns true if no parameter has several cuts and all outputs depend on the inputs.
  bool cut_graph();
  // Runs backward and accumulates gradients in the `.grad` of `leaves`.
  void run(const Tensors& leaves, const Tensors& output_gradients, bool keep_graph) const;
  Tensors take_input_gradients() const;

  Tensors outputs_, inputs_, parameters_;
  Tensors output_gradients_;  // kept from the first part if the second one runs over the whole graph
  std::vector<Cut> cuts_;
  bool is_cut_ = false;
};

// Consecutive layers of a model, and the state that micro-batches keep for backward. Gradients of parameters
// accumulate in their `.grad` as soon as they are computed. Not thread-safe.
class Stage {
 public:
  // `splits`: whether backward runs in two parts.
  Stage(std::vector<ModelLayer> layers, bool splits);

  // Returns the parameters and buffers of the layers, without duplicates.
  const Tensors& tensors() const { return tensors_; }
  void clear_gradients();
  // Runs forward through all layers. With gradients enabled, keeps the state for backward.
  Tensors forward(int micro_batch, const Tensors& inputs);
  // Makes backward start from `outputs`, such as the loss, instead of the results of forward().
  void replace_outputs(int micro_batch, Tensors outputs);
  // Returns the gradients of the inputs that require one, and accumulates those of the parameters.
  // `output_gradients` has one entry per output that requires a gradient; empty for a loss.
  Tensors backward(int micro_batch, const Tensors& output_gradients);
  // Run the first part of backward(), and the second one.
  Tensors backward_input(int micro_batch, const Tensors& output_gradients);
  void backward_weight(int micro_batch);

 private:
  struct Kept {
    Tensors inputs;
    Tensors outputs;
    std::unique_ptr<SplitBackward> backward;  // set between the two parts
  };

  Tensors gradients_for(const Kept& kept, const Tensors& given) const;
  Tensors of_inputs(const Tensors& inputs, const Tensors& gradients) const;

  std::vector<ModelLayer> layers_;
  bool splits_;
  Tensors tensors_;
  Tensors parameters_;  // trained parameters
  std::map<int, Kept> kept_;
};

}  // namespace rondo
