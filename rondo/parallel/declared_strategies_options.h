#pragma once

#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// Every strategy that all_strategies() can make, as its folder declares it. Includes nothing of libtorch.
std::vector<Declaration> declared_strategies();

}  // namespace rondo
