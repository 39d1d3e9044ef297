#pragma once

#include <exception>
#include <string>

namespace rondo {

// Returns the text of a failure of libtorch's engine or store as a part of a message: one line of ASCII
// without the stack and the place in its source.
std::string engine_reason(const std::exception& error);

}  // namespace rondo
