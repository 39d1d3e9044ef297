#include "apps/bench/collectives/emulated_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

// Runs a command of iproute2 in this process's network namespace.
void must(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw Error(str("cannot run '", command, "': ", errno_text(errno)));
  std::string said;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  if (pclose(pipe) != 0) {
    throw Error(str("'", command, "' failed: ", trim(said),
                    ". Emulated hosts need root, iproute2 (ip, tc), and veth and tbf in the kernel."));
  }
}

int open_own_namespace() {
  const int descriptor = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw Error(str("cannot open this process's network namespace: ", errno_text(errno)));
  return descriptor;
}

void enter_namespace(int descriptor) {
  if (setns(descriptor, CLONE_NEWNET) != 0)
    throw Error(str("cannot enter a network namespace: ", errno_text(errno)));
}

void configure(int host, const std::string& rate) {
  const std::string interface = EmulatedHosts::interface(host);
  must("ip link set lo up");
  must(str("ip addr add 10.78.0.", host + 1, "/24 dev ", interface));
  must(str("ip link set ", interface, " up"));
  // A bucket that holds less than some of the kernel's largest segments (64 KiB) makes TCP stall.
  must(str("tc qdisc add dev ", interface, " root tbf rate ", rate, " burst 1mb latency 100ms"));
}

}  // namespace

EmulatedHosts::EmulatedHosts(const std::string& rate) {
  if (rate.empty() ||
      rate.find_first_not_of("0123456789.abcdefghijklmnopqrstuvwxyzBKMGT") != std::string::npos)
    throw UsageError(str("--rate ", rate, " is not a rate as tc writes it: 1gbit, 100mbit"));
  const int original = open_own_namespace();
  try {
    for (int host = 0; host < 2; ++host) {
      if (unshare(CLONE_NEWNET) != 0) {
        throw Error(str("cannot make a network namespace: ", errno_text(errno),
                        ". Emulated hosts need root and a kernel with network namespaces."));
      }
      namespaces_.push_back(open_own_namespace());
    }
    enter_namespace(namespaces_[0]);
    must(str("ip link add ", interface(0), " type veth peer name ", interface(1), " netns /proc/", getpid(),
             "/fd/", namespaces_[1]));
    configure(0, rate);
    enter_namespace(namespaces_[1]);
    configure(1, rate);
    enter_namespace(original);
  } catch (...) {
    setns(original, CLONE_NEWNET);
    close(original);
    throw;
  }
  close(original);
}

EmulatedHosts::~EmulatedHosts() {
  for (const int descriptor : namespaces_) close(descriptor);
}

void EmulatedHosts::enter(int host) const { enter_namespace(namespaces_[static_cast<std::size_t>(host)]); }

std::string EmulatedHosts::interface(int host) { return str("host", host); }

}  // namespace rondo::bench
