#pragma once

#include <vector>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/hierarchical/hierarchical_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

// Calls visit(factory) for every engine factory, one line each. A factory has `Options`, `declaration()`
// and `engine()`; a program that uses only the first two links no libtorch.
template <class Visit>
void for_each_engine_factory(const Visit& visit) {
  visit(GlooEngineFactory());
  visit(HierarchicalEngineFactory());
  visit(MpiEngineFactory());
  visit(NativeEngineFactory());
  visit(NcclEngineFactory());
}

// Returns the declarations of rondo's own engines, without libtorch.
inline std::vector<Declaration> declared_engines() {
  std::vector<Declaration> engines;
  for_each_engine_factory([&](auto factory) { engines.push_back(decltype(factory)::declaration()); });
  return engines;
}

}  // namespace rondo
