#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

namespace rondo {

// Which parameters the weight decay is for.
enum class Decayed {
  all,       // every parameter
  matrices,  // not those of one dimension or none in the whole model: biases, what norms scale with
};

// An optimizer by name and its figures; each takes what concerns it.
struct OptimizerOptions {
  std::string name = "adamw";   // one of optimizer_names()
  double learning_rate = 1e-3;  // of all parameter groups
  double weight_decay = 0.0;    // adamw, lion: decoupled from the gradient; others: added to it
  double momentum = 0.0;        // sgd, lars
  double beta1 = 0.9;           // adam, adamw, lamb, lion
  double beta2 = 0.999;         // adam, adamw, lamb, lion
  double epsilon = 1e-8;        // all but sgd and lion
  double trust = 1e-3;          // lars: the rate of a parameter whose gradient is as long as itself
  // With a weight decay. What Trainer::compile(OptimizerOptions) adds to `undecayed`.
  Decayed decayed = Decayed::all;
  // Names of parameters without weight decay, whole or with '*' at an end: "head.bias", "*.bias", "norm.*".
  std::vector<std::string> undecayed = {};
};

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
