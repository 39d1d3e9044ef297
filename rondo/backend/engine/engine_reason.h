#pragma once

#include <exception>
#include <string>

namespace rondo {

// What an engine or a store of libtorch says of a failure, as a part of a message: one line of ASCII without
// the stack and the place in its source.
std::string engine_reason(const std::exception& error);

}  // namespace rondo
