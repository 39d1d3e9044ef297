#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace rondo {

// A module of a model under its dotted name, which is empty for the model itself.
struct NamedModule {
  std::string name;
  torch::nn::Module* module;  // valid as long as the model
};

// `model` and all modules below it, in order of registration. In contrast to Module::modules() and
// Module::named_modules() the model need not be owned by a shared_ptr: it may be a variable on the stack.
std::vector<NamedModule> modules_of(const torch::nn::Module& model);

}  // namespace rondo
