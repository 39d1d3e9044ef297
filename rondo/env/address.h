#pragma once

#include <string>
#include <string_view>

namespace rondo::env {

// Parts of "host:port".
struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  std::string port;  // text of the port; empty if there is none
};

// Splits "host:port", "[::1]:29500", "host" or "::1". An IPv6 address without brackets has no port, because
// the port would be ambiguous.
HostPort split_host_port(std::string_view text);

// Returns "::1" for "[::1]" and every other host unchanged. Resolvers expect IPv6 addresses without brackets.
std::string without_brackets(std::string_view host);

// Rendezvous method of a job; the same three as in PyTorch.
struct InitMethod {
  enum class Kind { environment, file, tcp };
  Kind kind = Kind::environment;
  std::string path;  // file: a path that all ranks share
  std::string host;  // tcp: host on which rank 0 listens
  int port = 0;      // tcp: 1 to 65535
};

// Parses "env://", "file:///path/shared" or "tcp://host:port" ("tcp://[::1]:29500" for IPv6). An empty text
// means "env://". Throws UsageError that shows the text and the three forms.
InitMethod parse_init_method(std::string_view text);

}  // namespace rondo::env
