#pragma once

#include <string>
#include <vector>

#include "rondo/options/option_table.h"

// Options of optimizers and their declarations for command lines, without libtorch.
namespace rondo {

// The optimizers of make_optimizer(), sorted.
inline constexpr const char* kOptimizerNames[] = {"adagrad", "adam", "adamw", "lamb", "lars", "lion", "sgd"};

// Parameters that the weight decay applies to.
enum class Decayed {
  all,       // every parameter
  matrices,  // parameters of two or more dimensions in the whole model: not biases, not scales of norms
};

// An optimizer's name and options; each optimizer reads its own.
struct OptimizerOptions {
  std::string name = "adamw";   // one of optimizer_names()
  double learning_rate = 1e-3;  // learning rate of all parameter groups
  double weight_decay = 0.0;    // adamw, lion: decoupled from the gradient; others: added to it
  double momentum = 0.0;        // sgd, lars
  double beta1 = 0.9;           // adam, adamw, lamb, lion
  double beta2 = 0.999;         // adam, adamw, lamb, lion
  double epsilon = 1e-8;        // all except sgd and lion
  double trust = 1e-3;          // lars: the rate of a parameter whose gradient has the parameter's norm
  // Parameters that the weight decay applies to; Trainer::compile(OptimizerOptions) adds the others to
  // `undecayed`.
  Decayed decayed = Decayed::all;
  // Names of parameters without weight decay, whole or with '*' at an end: "head.bias", "*.bias", "norm.*".
  std::vector<std::string> undecayed = {};
};

// Reads "all" or "matrices". Throws UsageError naming `what` for any other text.
void read_option(const std::string& text, const std::string& what, Decayed& value);
std::string option_text(Decayed value);  // the text that read_option() reads

OptionsOf<OptimizerOptions> optimizer_table();  // optimizer, lr, weight-decay, ...

}  // namespace rondo
