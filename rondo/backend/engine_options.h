#pragma once

#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// rondo's own communication engines, without libtorch: those of engine_folders.h.
std::vector<Declaration> declared_engines();

}  // namespace rondo
