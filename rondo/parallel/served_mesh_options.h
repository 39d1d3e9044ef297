#pragma once

#include <string>

#include "rondo/env/mesh.h"

namespace rondo {

// Why strategy_on_mesh() does not train by strategy `name` on that mesh; empty where it does. What has been
// shown to train as one process is served. Includes nothing of libtorch: planners ask before any rank starts.
std::string mesh_refusal(const Mesh& mesh, const std::string& name);

}  // namespace rondo
