#pragma once

#include <string>
#include <string_view>

namespace rondo {

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

}  // namespace rondo
