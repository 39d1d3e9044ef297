#pragma once

#include <string>
#include <vector>

#include "rondo/nn/wrap.h"

namespace rondo {

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
