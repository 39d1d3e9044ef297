#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// Two hosts on this machine: network namespaces without names, joined by a link (veth) that is shaped in both
// directions (tc tbf). They vanish with the last process that uses them. Needs root, iproute2, and a kernel
// that has these; throws Error saying which of them is missing.
class EmulatedHosts {
 public:
  // `rate` as tc writes it: "1gbit", "100mbit".
  explicit EmulatedHosts(const std::string& rate);
  ~EmulatedHosts();
  EmulatedHosts(const EmulatedHosts&) = delete;
  EmulatedHosts& operator=(const EmulatedHosts&) = delete;

  // Moves this process to host 0 or 1. To be called before it starts threads or opens sockets.
  void enter(int host) const;
  // The name of a host's interface.
  static std::string interface(int host);

 private:
  std::vector<int> namespaces_;  // descriptors
};

}  // namespace rondo::bench
