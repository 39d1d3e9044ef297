#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// Returns the bits per second of a rate in tc's notation: "1gbit", "100mbit", "10mbps" (bytes), "1gibit", or
// a plain number of bits. Throws UsageError naming --rate for anything else.
double bits_per_second(const std::string& rate);

// Emulated hosts on this machine: unnamed network namespaces joined by links (veth) that are shaped in both
// directions (tc tbf). Two hosts share one link; more are each linked to a switch (a bridge). They vanish
// with the last process that uses them. Needs root, iproute2, and kernel support; throws Error that names the
// missing part.
class EmulatedHosts {
 public:
  // `rate` is in tc's notation, see bits_per_second(). Throws UsageError unless there are 2 to 200 hosts.
  EmulatedHosts(int hosts, const std::string& rate);
  ~EmulatedHosts();
  EmulatedHosts(const EmulatedHosts&) = delete;
  EmulatedHosts& operator=(const EmulatedHosts&) = delete;

  int count() const { return static_cast<int>(namespaces_.size()); }
  // Moves this process to a host. Call it before starting threads or opening sockets.
  void enter(int host) const;
  // Returns a descriptor of the host's network namespace for setns(2); valid as long as this object.
  int network_namespace(int host) const { return namespaces_[static_cast<std::size_t>(host)]; }
  // Returns the name of a host's interface.
  static std::string interface(int host);
  // Returns the host of a rank if `ranks` are spread over `hosts` in blocks.
  static int host_of(int rank, int ranks, int hosts) { return rank * hosts / ranks; }

 private:
  void join_two();
  void join_by_switch(const std::string& rate);
  void close_all();

  std::vector<int> namespaces_;  // descriptors
  int switch_ = -1;              // descriptor of the namespace with the bridge; -1 without one
};

}  // namespace rondo::bench
