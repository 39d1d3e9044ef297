#pragma once

#include <string>

#include "rondo/base/time.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// Returns the first address of a network interface, IPv4 before IPv6. Empty if the interface does not exist
// or has no address.
std::string address_of_interface(const std::string& name);

// Returns the address of this host on the route to `host`. Empty if the name does not resolve or there is no
// route. Sends nothing.
std::string local_address_towards(const std::string& host);

// Resolves `host` repeatedly until it has an address. Returns an empty text on success, or the last error
// after `patience` ("the name 'n1' does not resolve: Name or service not known").
std::string wait_for_address(const std::string& host, Duration patience);

// The listening socket of rank 0.
struct Listener {
  int descriptor = -1;  // bound and listening; -1: the caller must listen on all addresses
  std::string address;  // numeric address for clients on this host
};

// Listens at the address that `host` names, so that the port is not open on other interfaces. Falls back to
// the address of `interface` if `host` resolves to loopback on this host (as in Debian's /etc/hosts) or is
// not an address of this host (a Kubernetes service). Without an `interface`, falls back to all addresses and
// logs a warning. The descriptor is also -1 if the port is taken. Thread-safe.
Listener listen_at(const std::string& host, int port, const std::string& interface);

// Listens like listen_at(), but itself falls back to all addresses. Returns an invalid descriptor if the port
// is taken. Logs nothing.
Descriptor listen_for_others(const std::string& host, int port, const std::string& interface);

// A TCP connection, or the reason for a failure ("Connection refused").
struct Connection {
  Descriptor descriptor;  // non-blocking
  std::string reason;
};

// Connects to the first address of `host` that accepts. `limit` applies to each address.
Connection connect_to(const std::string& host, int port, Duration limit);

// Tries to connect to host:port until it succeeds. Returns an empty text on success, or the last error after
// `timeout` ("Connection refused"). Logs every 10 s that it is still waiting.
std::string wait_for_listener(const std::string& host, int port, Duration timeout);

// Returns a TCP port on which no process listens now. The port is not reserved: rank 0 binds it later. Throws
// Error.
int find_free_port();

// Throws UsageError if `port` cannot be bound, naming the address and, if /proc shows them, the pid and
// program of its owner. Does nothing if `address` is not of this host.
void require_free_port(const std::string& address, int port);

// Returns why `port` cannot be bound on all addresses of this host: "Address already in use by pid 123
// (python3), which listens on 127.0.0.1:29500". Empty if it can be bound.
std::string why_port_is_taken(int port);

// Returns the process that listens on the port: "pid 123 (python3), which listens on 127.0.0.1:29500". Empty
// if it is not visible.
std::string port_owner(int port);

}  // namespace rondo::launch
