#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"

namespace rondo {

// Returns a module without a forward() that has the given parameters under their dotted names
// ("transformer.h.0.ln_1.bias"). An optimizer is constructed with it when each rank optimizes only a part of
// a model. The tensors are registered as they are.
std::shared_ptr<torch::nn::Module> make_parameter_module(const std::vector<ModelTensor>& parameters);

// Returns true if `module` may be a result of make_parameter_module(): without a forward() it cannot have
// units.
bool is_parameter_module(const torch::nn::Module& module);

}  // namespace rondo
