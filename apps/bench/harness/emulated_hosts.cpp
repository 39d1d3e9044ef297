#include "apps/bench/harness/emulated_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>

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

// Moves this process to a new namespace and returns the namespace's descriptor.
int make_namespace() {
  if (unshare(CLONE_NEWNET) != 0) {
    throw Error(str("cannot make a network namespace: ", errno_text(errno),
                    ". Emulated hosts need root and a kernel with network namespaces."));
  }
  return open_own_namespace();
}

void shape(const std::string& interface, const std::string& rate) {
  // With a bucket smaller than the kernel's largest segments (64 KiB) TCP stalls.
  must(str("tc qdisc add dev ", interface, " root tbf rate ", rate, " burst 1mb latency 100ms"));
}

// Disables IPv6: the kernel sends router solicitations on a new interface for seconds, and a link's bytes are
// counted, so only the job may send.
void keep_quiet(const std::string& interface) {
  must(str("f=/proc/sys/net/ipv6/conf/", interface, "/disable_ipv6; test ! -w $f || echo 1 > $f"));
}

void configure(int host, const std::string& rate) {
  const std::string interface = EmulatedHosts::interface(host);
  must("ip link set lo up");
  keep_quiet(interface);
  must(str("ip addr add 10.78.0.", host + 1, "/24 dev ", interface));
  must(str("ip link set ", interface, " up"));
  shape(interface, rate);
}

// Creates a veth pair: `name` in this process's namespace, the other end as the host's interface in the
// namespace of `descriptor`.
void link_to(const std::string& name, int host, int descriptor) {
  must(str("ip link add ", name, " type veth peer name ", EmulatedHosts::interface(host), " netns /proc/",
           getpid(), "/fd/", descriptor));
}

}  // namespace

double bits_per_second(const std::string& rate) {
  static const std::map<std::string, double> units = {
      {"", 1},           {"bit", 1},        {"kbit", 1e3},        {"mbit", 1e6},     {"gbit", 1e9},
      {"tbit", 1e12},    {"kibit", 1024.0}, {"mibit", 1048576.0}, {"gibit", 0x1p30}, {"tibit", 0x1p40},
      {"bps", 8},        {"kbps", 8e3},     {"mbps", 8e6},        {"gbps", 8e9},     {"tbps", 8e12},
      {"kibps", 8192.0}, {"mibps", 0x1p23}, {"gibps", 0x1p33}};
  const std::size_t digits = rate.find_first_not_of("0123456789.");
  const std::string number = rate.substr(0, digits);
  const auto unit = units.find(digits == std::string::npos ? "" : rate.substr(digits));
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (unit == units.end() || number.empty() || *end != '\0' || !(value > 0))
    throw UsageError(str("--rate ", rate, " is not a rate in tc's notation, such as 1gbit or 100mbit"));
  return value * unit->second;
}

EmulatedHosts::EmulatedHosts(int hosts, const std::string& rate) {
  bits_per_second(rate);
  if (hosts < 2 || hosts > 200) throw UsageError(str(hosts, " emulated hosts: expected 2 to 200"));
  const int original = open_own_namespace();
  try {
    for (int host = 0; host < hosts; ++host) namespaces_.push_back(make_namespace());
    if (hosts == 2) {
      join_two();
    } else {
      join_by_switch(rate);
    }
    for (int host = 0; host < hosts; ++host) {
      enter(host);
      configure(host, rate);
    }
    enter_namespace(original);
  } catch (...) {
    setns(original, CLONE_NEWNET);
    close(original);
    close_all();
    throw;
  }
  close(original);
}

void EmulatedHosts::join_two() {
  enter(0);
  link_to(interface(0), 1, namespaces_[1]);
}

void EmulatedHosts::join_by_switch(const std::string& rate) {
  switch_ = make_namespace();
  must("ip link add name switch type bridge");
  keep_quiet("switch");
  must("ip link set switch up");
  for (int host = 0; host < count(); ++host) {
    const std::string port = str("port", host);
    link_to(port, host, network_namespace(host));
    keep_quiet(port);
    must(str("ip link set ", port, " master switch"));
    must(str("ip link set ", port, " up"));
    shape(port, rate);
  }
}

EmulatedHosts::~EmulatedHosts() { close_all(); }

void EmulatedHosts::close_all() {
  for (const int descriptor : namespaces_) close(descriptor);
  if (switch_ >= 0) close(switch_);
}

void EmulatedHosts::enter(int host) const { enter_namespace(network_namespace(host)); }

std::string EmulatedHosts::interface(int host) { return str("host", host); }

}  // namespace rondo::bench
