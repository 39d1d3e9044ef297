#pragma once

#include <string_view>

namespace rondo {

// Whether the workers of that strategy are trained by parameter servers, which are processes of their own.
inline bool uses_servers(std::string_view strategy) {
  return strategy == "parameter_server" || strategy == "grouped";
}

}  // namespace rondo
