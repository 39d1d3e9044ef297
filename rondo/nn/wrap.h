#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// Says of a layer whether it becomes a unit.
using WrapRule = std::function<bool(const torch::nn::Module& layer)>;

// The same of a layer and its path in the model ("blocks.0").
using NamedWrapRule = std::function<bool(const std::string& name, const torch::nn::Module& layer)>;

// Every layer that has parameters.
WrapRule wrap_all();
// Layers whose parameters, those of its children included, take at least so many bytes.
WrapRule wrap_from(Bytes parameters);
// Layers of one of the given types (torch::nn::LinearImpl, ...).
template <class... Types>
WrapRule wrap_types() {
  return
      [](const torch::nn::Module& layer) { return (... || (dynamic_cast<const Types*>(&layer) != nullptr)); };
}

// Makes units of layers without changing any type: the children of every torch::nn::Sequential in `model` (at
// any depth) for which `rule` says so, provided that they take a tensor and give one. Names of parameters
// stay. Returns how many there are now more. Layers without parameters and layers that are units already stay
// as they are. Throws UsageError for an empty `rule`.
//
// Only Sequential calls its children through an indirection that can be replaced: forward is not virtual in
// libtorch, so what other modules call by its type must be declared as a rondo::Unit. Call before training,
// and before parameters are handed to an optimizer or strategy.
int wrap_units(torch::nn::Module& model, const NamedWrapRule& rule);
int wrap_units(torch::nn::Module& model, const WrapRule& rule);  // the same

// Wrapping rules as text, for command lines. Each is one of
//   all                every layer with parameters
//   type:Linear        layers of this class (with or without its namespace and "Impl")
//   name:blocks.*      layers whose path in the model fits; '*' is any text, '?' one letter
//   parameters:10000   layers with at least so many parameters, those of their children included
// and a layer becomes a unit when one of them fits. Throws UsageError naming the rule and what is allowed.
NamedWrapRule parse_wrap_rules(const std::vector<std::string>& rules);

// wrap_units() by parse_wrap_rules(). Throws UsageError when no layer fits, naming those that could become
// units. Returns how many there are now more.
int wrap_units(torch::nn::Module& model, const std::vector<std::string>& rules);

}  // namespace rondo
