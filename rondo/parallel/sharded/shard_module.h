#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"

namespace rondo {

// A module without a forward that has the given parameters under their dotted names
// ("transformer.h.0.ln_1.bias"): what an optimizer is made of when each rank optimises only a part of a
// model. The tensors are registered as they are.
std::shared_ptr<torch::nn::Module> make_parameter_module(const std::vector<ModelTensor>& parameters);

// Whether `module` may be of that kind: it has no forward, so it cannot have units of its own.
bool is_parameter_module(const torch::nn::Module& module);

}  // namespace rondo
