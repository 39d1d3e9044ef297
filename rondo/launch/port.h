#pragma once

#include <string>

namespace rondo::launch {

// A TCP port that nobody listens on now. It is not reserved: rank 0 binds it a moment later. Throws Error.
int find_free_port();

// Throws UsageError when `port` of this host cannot be listened on, naming the address and, where /proc shows
// it, the pid and program of its owner. Does nothing when `address` is not of this host.
void require_free_port(const std::string& address, int port);

// "pid 123 (python3), which listens on 127.0.0.1:29500", or an empty text when it cannot be seen.
std::string port_owner(int port);

}  // namespace rondo::launch
