#pragma once

#include <torch/nn/module.h>

#include <string>

namespace rondo {

// `forward` of a built-in model in evaluation mode, in TorchScript, for a module with its parameters and
// buffers under their names; empty for any other model.
std::string script_source(const torch::nn::Module& module);

}  // namespace rondo
