#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "rondo/nn/model.h"

namespace torch::jit {
struct Module;
}

namespace rondo {

// Returns the model as a TorchScript module, which torch.jit.load in Python runs without rondo: forward(x)
// gives the same outputs as the model in evaluation mode. It holds the model's own parameters and buffers
// under their names.
//
// mlp, convnet, gpt and bert have scripts, for batches of any size (and texts of any length up to the
// model's). Any other model is traced: operations on `example`, whose first dimension is the samples, are
// recorded, and sizes that its forward reads as numbers become constants. `any_batch` is false if the trace
// differs from the model for another number of samples. Throws UsageError if the tracer cannot record the
// model, or the script gives other outputs.
torch::jit::Module script_of(const Model& model, const at::Tensor& example, bool& any_batch);

// Loads the module of a torch.jit.save file, on the CPU and in training mode. Throws UsageError naming
// `path`.
torch::jit::Module load_script(const std::string& path);

}  // namespace rondo
