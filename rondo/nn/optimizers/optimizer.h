#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/optimizers/optimizer_options.h"

namespace rondo {

// An optimizer over all parameters of `module`: FusedAdam, FusedAdamW, torch::optim::SGD or Adagrad, Lamb,
// Lars, Lion. Those of `undecayed` are a second parameter group. Throws UsageError for an unknown name or
// values that cannot be, and for a pattern of `undecayed` that no parameter has.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        torch::nn::Module& module);

// The parameters of one dimension or none, by name: of a whole model, before a strategy takes it apart.
std::vector<std::string> parameters_that_are_no_matrices(const torch::nn::Module& model);

// adagrad, adam, adamw, lamb, lars, lion, sgd.
std::vector<std::string> optimizer_names();

}  // namespace rondo
