#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/model.h"

namespace rondo {

// A step of a model that is a sequence of such: what a pipeline's stages are made of.
struct ModelLayer {
  std::string name;         // of its unit ("transformer.h.0"), or of its own ("embeddings")
  ForwardFunction forward;  // what the layer before gave, all of it, to what the next one gets
  // Parameters and buffers that it uses, of its own modules and of others (a tied weight).
  std::vector<at::Tensor> tensors = {};
};

// A layer of these modules (null ones do not count), and of these tensors besides.
ModelLayer make_layer(std::string name, const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                      ForwardFunction forward, const std::vector<at::Tensor>& others = {});

// A module that says what it is a sequence of. The inputs of the first layer are the model's, the outputs of
// the last one are the model's; any tensors may pass between two layers, so what a later one needs (a mask, a
// skip connection) is passed on by those between.
class LayerSequence {
 public:
  virtual ~LayerSequence() = default;
  // In the order of forward. Layers keep the module's parts alive.
  virtual std::vector<ModelLayer> layers() = 0;
};

// The layers of a model: of a LayerSequence, or the children of a torch::nn::Sequential. Every parameter of
// the model is used by some layer. Throws UsageError for another model, and naming a parameter that none
// uses.
std::vector<ModelLayer> layers_of(const Model& model);

// The layers of a torch::nn::Sequential whose path in the model is `name` ("features"; empty for the model
// itself).
std::vector<ModelLayer> layers_of(torch::nn::Module& sequential, const std::string& name);

}  // namespace rondo
