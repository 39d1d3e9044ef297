#pragma once

#include <string>

#include "rondo/base/time.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// The first address of a network interface of this host, IPv4 before IPv6; empty when there is no such
// interface or it has no address.
std::string address_of_interface(const std::string& name);

// The address of this host from which it would reach `host`; empty when the name does not resolve or there is
// no route. Sends nothing.
std::string local_address_towards(const std::string& host);

// Looks up `host` until it has an address. Returns an empty text then, or after `patience` why it has none
// ("the name 'n1' does not resolve: Name or service not known").
std::string wait_for_address(const std::string& host, Duration patience);

// Where rank 0 listens.
struct Listener {
  int descriptor = -1;  // bound and listening; -1: leave it to the caller, on every address
  std::string address;  // numeric; what a client on this host connects to
};

// Listens at the address that `host` names, so that no other interface has the port open. A name that this
// host gives itself a loopback address for (as Debian does in /etc/hosts), or that is no address of this host
// (a Kubernetes service), falls back to the address of `interface`, and without that to every address; the
// latter is logged. descriptor is -1 too when the port is taken. Any thread.
Listener listen_at(const std::string& host, int port, const std::string& interface);

// Listens as listen_at() does, on every address where that leaves it to the caller. Not valid where the port
// is taken. Logs nothing.
Descriptor listen_for_others(const std::string& host, int port, const std::string& interface);

// A TCP connection, or why there is none ("Connection refused").
struct Connection {
  Descriptor descriptor;  // non-blocking
  std::string reason;
};

// Connects to the first address of `host` where somebody listens; `limit` is that of each address.
Connection connect_to(const std::string& host, int port, Duration limit);

// Tries to connect to host:port until somebody listens there. Returns an empty text then, or after `timeout`
// what happened last ("Connection refused"). Says every ten seconds in the log that it still waits.
std::string wait_for_listener(const std::string& host, int port, Duration timeout);

// A TCP port that nobody listens on now. It is not reserved: rank 0 binds it a moment later. Throws Error.
int find_free_port();

// Throws UsageError when `port` of this host cannot be listened on, naming the address and, where /proc shows
// it, the pid and program of its owner. Does nothing when `address` is not of this host.
void require_free_port(const std::string& address, int port);

// "pid 123 (python3), which listens on 127.0.0.1:29500", or an empty text when it cannot be seen.
std::string port_owner(int port);

}  // namespace rondo::launch
