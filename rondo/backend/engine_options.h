#pragma once

#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// The communication engines that make_backend() knows by name, without libtorch. They have no options but the
// arguments in brackets behind their names.
std::vector<Declaration> declared_engines();

}  // namespace rondo
