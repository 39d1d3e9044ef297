#pragma once

#include "rondo/options/declaration.h"

namespace rondo {

// What command lines know of strategy one_device, which can be told nothing.
Declaration one_device_declaration();
// The same of strategy default.
Declaration default_declaration();

}  // namespace rondo
