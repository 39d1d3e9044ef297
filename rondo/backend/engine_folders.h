#pragma once

#include <vector>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/hierarchical/hierarchical_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

// Calls visit(folder) for every folder with an engine, one line each. A folder has `Options`, `declaration()`
// and `engine()`; a program that uses only the first two links no libtorch.
template <class Visit>
void for_each_engine_folder(const Visit& visit) {
  visit(GlooFolder());
  visit(HierarchicalFolder());
  visit(MpiFolder());
  visit(NativeFolder());
  visit(NcclFolder());
}

// Returns the declarations of rondo's own engines, without libtorch.
inline std::vector<Declaration> declared_engines() {
  std::vector<Declaration> engines;
  for_each_engine_folder([&](auto folder) { engines.push_back(decltype(folder)::declaration()); });
  return engines;
}

}  // namespace rondo
