#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/optimizers/optimizer_options.h"

namespace rondo {

// Creates an optimizer over all parameters of `module`: FusedAdam, FusedAdamW, torch::optim::SGD or Adagrad,
// Lamb, Lars, Lion. Parameters that match `undecayed` are a second parameter group. Throws UsageError for an
// unknown name, invalid values, and a pattern of `undecayed` that matches no parameter.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        torch::nn::Module& module);

// Returns the names of parameters with at most one dimension. Call it with the whole model, before a strategy
// shards it.
std::vector<std::string> non_matrix_parameters(const torch::nn::Module& model);

// Returns adagrad, adam, adamw, lamb, lars, lion, sgd.
std::vector<std::string> optimizer_names();

}  // namespace rondo
