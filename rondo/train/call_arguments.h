#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/backend/context.h"

namespace rondo {

// An argument of a call that all ranks make together, as they compare it.
struct CallArgument {
  std::string name = {};
  nlohmann::json value = {};  // a number, a text, or a list of such
  // Computes `value` once more, where that may give another one each time: then ranks do not compare it.
  std::function<nlohmann::json()> again = {};
};

// Throws AgreedError on all ranks when an argument differs between them, naming the argument, its values and
// the ranks that gave them. Numbers that differ by a rounding are equal. Every rank gives the same names in
// the same order. Sends one hash where all are equal. Collective.
void verify_same_arguments(const Context& context, const std::string& call,
                           const std::vector<CallArgument>& arguments);

}  // namespace rondo
