#pragma once

#include <string>
#include <vector>

#include "rondo/env/mesh.h"
#include "rondo/options/declaration.h"

namespace rondo {

// Every strategy that all_strategies() can make, as its folder declares it. Includes nothing of libtorch.
std::vector<Declaration> declared_strategies();

// Why strategy_on_mesh() does not train by strategy `name` on that mesh; empty where it does. What has been
// shown to train as one process is served. Includes nothing of libtorch: planners ask before any rank starts.
std::string mesh_refusal(const Mesh& mesh, const std::string& name);

}  // namespace rondo
