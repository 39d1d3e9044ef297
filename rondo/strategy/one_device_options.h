#pragma once

#include "rondo/options/declaration.h"

namespace rondo {

// Returns the declaration of strategy one_device for command lines; it has no options.
Declaration one_device_declaration();
// Returns the declaration of strategy default.
Declaration default_declaration();

}  // namespace rondo
