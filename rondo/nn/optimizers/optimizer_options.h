#pragma once

#include <string>
#include <vector>

#include "rondo/options/option_table.h"

// Options of optimizers with their declarations for command lines, without libtorch.
namespace rondo {

// The optimizers of make_optimizer(), sorted.
inline constexpr const char* kOptimizerNames[] = {"adagrad", "adam", "adamw", "lamb", "lars", "lion", "sgd"};

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

// "all" or "matrices". Throws UsageError naming `what` for another text.
void read_option(const std::string& text, const std::string& what, Decayed& value);
std::string option_text(Decayed value);  // as read_option() reads it

OptionsOf<OptimizerOptions> optimizer_table();  // optimizer, lr, weight-decay, ...

}  // namespace rondo
