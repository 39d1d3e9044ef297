#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "rondo/nn/model.h"

namespace torch::jit {
struct Module;
}

namespace rondo {

// The model as a TorchScript module, which torch.jit.load in Python runs without rondo: forward(x) gives the
// same outputs as the model in evaluation mode. It holds the model's own parameters and buffers under their
// names.
//
// mlp, convnet, gpt and bert are written as scripts, for batches of any size (and texts of any length up to
// the model's). Any other model is traced: what it does with `example`, which has its first dimension's
// samples, is recorded, and so are sizes that its forward reads as numbers; `any_batch` is then false where
// the trace gives something else than the model for another number of samples. Throws UsageError for a model
// with other outputs than tensors that the tracer can follow.
torch::jit::Module script_of(const Model& model, const at::Tensor& example, bool& any_batch);

// The module in a file of torch.jit.save, on the CPU and in training mode. Throws UsageError that names
// `path`.
torch::jit::Module load_script(const std::string& path);

}  // namespace rondo
