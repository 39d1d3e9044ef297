#pragma once

#include <string>
#include <vector>

#include "rondo/env/mesh.h"
#include "rondo/options/declaration.h"

namespace rondo {

// Returns every strategy that all_strategies() can make, as declared in its folder. Does not depend on
// libtorch.
std::vector<Declaration> declared_strategies();

// Returns the reason why strategy_on_mesh() does not support strategy `name` on that mesh; empty if it does.
// A combination is supported if tests have shown that it trains like one process. Does not depend on
// libtorch: planners call it before any rank starts.
std::string mesh_refusal(const Mesh& mesh, const std::string& name);

}  // namespace rondo
