#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rondo {

struct OptimizerOptions {
  std::string name = "adamw";  // one of optimizer_names()
  double learning_rate = 1e-3;
  double weight_decay = 0.0;  // adamw: decoupled from the gradient; adam, sgd: added to it
  double momentum = 0.0;      // sgd
  double beta1 = 0.9;         // adam, adamw
  double beta2 = 0.999;       // adam, adamw
  double epsilon = 1e-8;      // adam, adamw
};

// Makes an optimizer of a model that a strategy has prepared.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(torch::nn::Module&)>;

// An optimizer over all parameters of `module`: FusedAdam, FusedAdamW or torch::optim::SGD. Throws UsageError
// for an unknown name or values that cannot be.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        torch::nn::Module& module);

// adam, adamw, sgd.
std::vector<std::string> optimizer_names();

// Sets the rate of all parameter groups.
void set_learning_rate(torch::optim::Optimizer& optimizer, double learning_rate);

}  // namespace rondo
