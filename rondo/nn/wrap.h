#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// Returns whether a layer becomes a unit.
using WrapRule = std::function<bool(const torch::nn::Module& layer)>;

// Returns whether a layer with this path in the model ("blocks.0") becomes a unit.
using NamedWrapRule = std::function<bool(const std::string& name, const torch::nn::Module& layer)>;

// Returns a rule for every layer that has parameters.
WrapRule wrap_all();
// Returns a rule for layers whose parameters, including those of children, take at least this many bytes.
WrapRule wrap_from(Bytes parameters);
// Returns a rule for layers of one of the given types (torch::nn::LinearImpl, ...).
template <class... Types>
WrapRule wrap_types() {
  return
      [](const torch::nn::Module& layer) { return (... || (dynamic_cast<const Types*>(&layer) != nullptr)); };
}

// Converts layers to units without changing any type: children of every torch::nn::Sequential in `model` (at
// any depth) that match `rule`. These layers must take one tensor and return one. Names of parameters do not
// change. Skips layers without parameters and existing units. Returns the number of new units. Throws
// UsageError for an empty `rule`.
//
// Only Sequential calls its children through a replaceable indirection. forward is not virtual in libtorch,
// so layers that other modules call by their type must be declared as a rondo::Unit. Call it before training,
// and before an optimizer or strategy is given the parameters.
int wrap_units(torch::nn::Module& model, const NamedWrapRule& rule);
int wrap_units(torch::nn::Module& model, const WrapRule& rule);  // likewise

// Parses wrapping rules for command lines. A layer becomes a unit when one of the rules matches. Each rule is
// one of
//   all                every layer with parameters
//   type:Linear        layers of this class (with or without its namespace and "Impl")
//   name:blocks.*      layers whose path in the model matches; '*' is any text, '?' one character
//   parameters:10000   layers with at least this many parameters, including those of children
// Throws UsageError naming the rule and the valid forms.
NamedWrapRule parse_wrap_rules(const std::vector<std::string>& rules);

// Calls wrap_units() with parse_wrap_rules(rules), and returns the number of new units. Throws UsageError if
// no layer matches, listing the layers that could become units.
int wrap_units(torch::nn::Module& model, const std::vector<std::string>& rules);

}  // namespace rondo
