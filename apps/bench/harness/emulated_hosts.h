#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// Bits a second that tc's way of writing a rate means: "1gbit", "100mbit", "10mbps" (bytes), "1gibit", or a
// plain number of bits. Throws UsageError naming --rate for anything else.
double bits_per_second(const std::string& rate);

// Hosts on this machine: network namespaces without names, joined by links (veth) that are shaped in both
// directions (tc tbf). Two share one link; more are each linked to a switch (a bridge). They vanish with the
// last process that uses them. Needs root, iproute2, and a kernel that has these; throws Error saying which
// of them is missing.
class EmulatedHosts {
 public:
  // `rate` as tc writes it, see bits_per_second. Throws UsageError unless there are 2 to 200 hosts.
  EmulatedHosts(int hosts, const std::string& rate);
  ~EmulatedHosts();
  EmulatedHosts(const EmulatedHosts&) = delete;
  EmulatedHosts& operator=(const EmulatedHosts&) = delete;

  int count() const { return static_cast<int>(namespaces_.size()); }
  // Moves this process to a host. To be called before it starts threads or opens sockets.
  void enter(int host) const;
  // A descriptor of the host's network namespace, for setns(2); valid as long as this object.
  int network_namespace(int host) const { return namespaces_[static_cast<std::size_t>(host)]; }
  // The name of a host's interface.
  static std::string interface(int host);
  // The host of a rank where `ranks` are spread over `hosts` in blocks.
  static int host_of(int rank, int ranks, int hosts) { return rank * hosts / ranks; }

 private:
  void join_two();
  void join_by_switch(const std::string& rate);
  void close_all();

  std::vector<int> namespaces_;  // descriptors
  int switch_ = -1;              // descriptor of the namespace with the bridge; -1 without one
};

}  // namespace rondo::bench
