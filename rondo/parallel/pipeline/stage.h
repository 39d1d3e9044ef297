#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rondo/nn/layers.h"
#include "rondo/parallel/pipeline/split_backward.h"

namespace rondo {

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
