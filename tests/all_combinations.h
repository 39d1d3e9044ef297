#pragma once

#include <cstdlib>
#include <string>

namespace rondo::tests {

// Returns whether RONDO_EQUALITY=all (`make equality`) selects every combination of models, strategies,
// meshes and numbers of ranks, rather than a part that has each of them.
inline bool all_combinations() {
  const char* const chosen = std::getenv("RONDO_EQUALITY");
  return chosen != nullptr && std::string(chosen) == "all";
}

}  // namespace rondo::tests
