#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/model.h"

namespace rondo {

// A layer of a model that is a sequence of layers; pipeline stages consist of such layers.
struct ModelLayer {
  std::string name;         // name of its unit ("transformer.h.0"), or a name of its own ("embeddings")
  ForwardFunction forward;  // maps all outputs of the previous layer to the inputs of the next
  // Parameters and buffers that the layer uses, of its own modules and of others (a tied weight).
  std::vector<at::Tensor> tensors = {};
};

// Creates a layer of these modules (null ones are skipped) and of the tensors in `others`.
ModelLayer make_layer(std::string name, const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                      ForwardFunction forward, const std::vector<at::Tensor>& others = {});

// A module that describes itself as a sequence of layers. The model's inputs go to the first layer, and the
// outputs of the last layer are the model's. Any tensors may pass between two layers; the layers between pass
// on tensors that a later layer needs (a mask, a skip connection).
class LayerSequence {
 public:
  virtual ~LayerSequence() = default;
  // Returns the layers in forward order. Layers keep the module's parts alive.
  virtual std::vector<ModelLayer> layers() = 0;
};

// Returns the layers of a model: those of a LayerSequence, or the children of a torch::nn::Sequential. Every
// parameter of the model is used by a layer. Throws UsageError for any other model, and for an unused
// parameter, naming it.
std::vector<ModelLayer> layers_of(const Model& model);

// Returns the layers of a torch::nn::Sequential with the path `name` in the model ("features"; empty for the
// model itself).
std::vector<ModelLayer> layers_of(torch::nn::Module& sequential, const std::string& name);

}  // namespace rondo
