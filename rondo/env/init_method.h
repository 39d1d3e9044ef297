#pragma once

#include <string>
#include <string_view>

namespace rondo::env {

// How the ranks of a job meet, PyTorch's three ways.
struct InitMethod {
  enum class Kind { environment, file, tcp };
  Kind kind = Kind::environment;
  std::string path;  // file: a path that all ranks share
  std::string host;  // tcp: where rank 0 listens
  int port = 0;      // tcp: 1 to 65535
};

// Reads "env://", "file:///path/shared" or "tcp://host:port" ("tcp://[::1]:29500" for IPv6); an empty text is
// "env://". Throws UsageError that shows the text and the three forms.
InitMethod parse_init_method(std::string_view text);

}  // namespace rondo::env
