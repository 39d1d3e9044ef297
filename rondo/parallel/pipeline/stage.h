#pragma once

#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rondo/nn/layers.h"
#include "rondo/nn/model.h"

namespace rondo {

// A backward pass in two parts: gradients of the inputs first, which somebody waits for, those of the
// parameters later. Where a parameter is used the gradient that arrives there is kept, so that the second
// part computes nothing again. Sources: PyTorch's stage_backward_input and stage_backward_weight show where
// the graph is cut. One thread uses an object.
class SplitBackward {
 public:
  // `outputs` were computed from `inputs` (leaves; those that need no gradient count for nothing) and
  // `parameters`.
  SplitBackward(Tensors outputs, Tensors inputs, Tensors parameters);

  // Both parts at once: gives the gradients of the inputs, undefined where there is none, and adds those of
  // the parameters to their `.grad`. `output_gradients` has one for each output, undefined for 1.
  Tensors gradients(const Tensors& output_gradients);
  // The first part: gradients of the inputs. What only this part needed is freed as it goes.
  Tensors input_gradients(const Tensors& output_gradients);
  // The second part adds the gradients of the parameters to their `.grad`. The graph is freed.
  void add_parameter_gradients();

 private:
  // A node on the way to the inputs at which gradients leave for parameters.
  struct Cut {
    std::shared_ptr<std::vector<at::Tensor>> arrived;  // what the first part brought it
    torch::autograd::Edge node;
    std::vector<std::size_t> parameters;
  };

  // Finds the cuts; whether no parameter has several, and all outputs depend on the inputs.
  bool cut_graph();
  // Gradients go into the `.grad` of `leaves`.
  void run(const Tensors& leaves, const Tensors& output_gradients, bool keep_graph) const;
  Tensors take_input_gradients() const;

  Tensors outputs_, inputs_, parameters_;
  Tensors output_gradients_;  // of the first part, where the second goes over the whole graph
  std::vector<Cut> cuts_;
  bool is_cut_ = false;
};

// Consecutive layers of a model, and what their micro-batches keep for backward. Gradients of parameters are
// added up in their `.grad`, each as soon as it is there. One thread uses an object.
class Stage {
 public:
  // `splits`: backward comes in two parts.
  Stage(std::vector<ModelLayer> layers, bool splits);

  // Parameters and buffers of its layers, each once.
  const Tensors& tensors() const { return tensors_; }
  void clear_gradients();
  // Forward through all layers; with gradients on it keeps what backward needs.
  Tensors forward(int micro_batch, const Tensors& inputs);
  // Backward begins at these instead of what forward gave: the loss.
  void replace_outputs(int micro_batch, Tensors outputs);
  // Gradients of the inputs, a tensor for each that takes one; those of the parameters are added up.
  // `output_gradients` has one for each output that takes one; empty for a loss.
  Tensors backward(int micro_batch, const Tensors& output_gradients);
  // The first part alone; then the second.
  Tensors backward_input(int micro_batch, const Tensors& output_gradients);
  void backward_weight(int micro_batch);

 private:
  struct Kept {
    Tensors inputs;
    Tensors outputs;
    std::unique_ptr<SplitBackward> backward;  // between the two parts
  };

  Tensors gradients_for(const Kept& kept, const Tensors& given) const;
  Tensors of_inputs(const Tensors& inputs, const Tensors& gradients) const;

  std::vector<ModelLayer> layers_;
  bool splits_;
  Tensors tensors_;
  Tensors parameters_;  // that are trained
  std::map<int, Kept> kept_;
};

}  // namespace rondo
