#pragma once

#include <string>
#include <string_view>

namespace rondo::env {

// The parts of "host:port".
struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  std::string port;  // as it was given; empty when there is none
};

// Splits "host:port", "[::1]:29500", "host" or "::1". An IPv6 address without brackets has no port, since
// nothing tells where it would begin.
HostPort split_host_port(std::string_view text);

// "::1" for "[::1]"; every other host stays as it is. Resolvers take IPv6 addresses without brackets.
std::string without_brackets(std::string_view host);

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
