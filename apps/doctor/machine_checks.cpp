#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "checks.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/identity.h"
#include "rondo/launch/host_resources.h"

namespace doctor {
namespace {

using rondo::Bytes;
using rondo::str;

// Returns a number from a control group's file; empty for "max" or a missing file.
std::optional<std::uint64_t> group_limit(const std::string& path) {
  const std::string text = first_line(path);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoull(text);
}

Bytes memory_information(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return rondo::KiB(std::stoull(line.substr(key.size() + 1)));
  }
  return {};
}

Finding check_cores() {
  const rondo::launch::CpuLayout layout = rondo::launch::cpu_layout();
  std::size_t threads = 0;
  for (const auto& core : layout.cores) threads += core.size();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  Finding finding{"machine",
                  "cores",
                  State::ok,
                  "",
                  "",
                  {{"cores", layout.cores.size()},
                   {"threads", threads},
                   {"numa_nodes", layout.nodes.size()},
                   {"online", online}}};
  finding.detail = str(layout.cores.size(), " cores, ", threads, " hardware threads, ", layout.nodes.size(),
                       " NUMA node(s)");
  if (static_cast<long>(threads) < online)
    finding.detail += str("; the machine has ", online, " threads, this process may use ", threads);
  if (const auto quota = rondo::launch::cpu_quota()) {
    finding.data["cgroup_cpus"] = *quota;
    finding.detail += str("; the container may use ", *quota, " of them at a time");
    if (*quota < static_cast<double>(threads)) {
      finding.state = State::warning;
      finding.get = "start no more processes than that, or raise the container's CPU limit";
    }
  }
  return finding;
}

Finding check_memory() {
  const Bytes total = memory_information("MemTotal");
  const Bytes available = memory_information("MemAvailable");
  Finding finding{"machine", "memory",
                  State::ok, str(to_string(total), ", ", to_string(available), " available"),
                  "",        {{"total_bytes", total.count}, {"available_bytes", available.count}}};
  if (const auto limit = group_limit("/sys/fs/cgroup/memory.max")) {
    finding.data["cgroup_bytes"] = *limit;
    finding.detail += str("; the container may use ", to_string(Bytes{*limit}));
  }
  return finding;
}

}  // namespace

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::string which(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& directory : rondo::split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    std::string candidate = directory + "/" + program;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

Findings check_machine() { return {check_cores(), check_memory(), check_gpus()}; }

Findings check_shared_memory() {
  Findings findings;
  const int file = memfd_create("rondo-doctor", MFD_CLOEXEC);
  const bool works = file >= 0 && ftruncate(file, 4096) == 0;
  if (file >= 0) close(file);
  rlimit size{};
  getrlimit(RLIMIT_FSIZE, &size);
  const bool limited = size.rlim_cur != RLIM_INFINITY;
  nlohmann::json data = {{"memfd", works}, {"file_size_limit_bytes", nullptr}};
  if (limited) data["file_size_limit_bytes"] = size.rlim_cur;
  if (!works) {
    findings.push_back({"shared memory", "memfd", State::broken, "cannot create anonymous shared memory",
                        "a kernel with memfd_create, and a sandbox that allows it; or --backend gloo", data});
  } else if (limited) {
    findings.push_back(
        {"shared memory", "memfd", State::warning,
         str("works; segments are limited to ", to_string(Bytes{size.rlim_cur}), " (file size limit)"),
         "ulimit -f unlimited", data});
  } else {
    findings.push_back(
        {"shared memory", "memfd", State::ok, "works; the size of a segment is not limited", "", data});
  }

  struct statvfs status {};
  if (statvfs("/dev/shm", &status) == 0) {
    const Bytes total{status.f_blocks * status.f_frsize};
    const Bytes free{status.f_bavail * status.f_frsize};
    findings.push_back(
        {"shared memory",
         "/dev/shm",
         State::ok,
         str(to_string(total), ", ", to_string(free), " free; used by PyTorch's data loaders, not by rondo"),
         "",
         {{"total_bytes", total.count}, {"free_bytes", free.count}}});
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const bool few = files.rlim_cur < 1024;
  findings.push_back({"shared memory",
                      "open files",
                      few ? State::warning : State::ok,
                      str("limit ", files.rlim_cur),
                      few ? "ulimit -n 65536" : "",
                      {{"limit", files.rlim_cur}}});
  return findings;
}

}  // namespace doctor

namespace doctor {
namespace {

using rondo::str;

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text.data(), text.size());
  }
  return text.data();
}

struct Interface {
  bool up = false;
  bool loopback = false;
  std::vector<std::string> addresses;
};

std::map<std::string, Interface> interfaces() {
  std::map<std::string, Interface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Interface& interface = found[entry->ifa_name];
    interface.up = (entry->ifa_flags & IFF_UP) != 0;
    interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    const std::string address = entry->ifa_addr == nullptr ? "" : address_text(*entry->ifa_addr);
    if (!address.empty()) interface.addresses.push_back(address);
  }
  return found;
}

}  // namespace

Findings check_network() {
  Findings findings;
  for (const auto& [name, interface] : interfaces()) {
    std::string detail = str(interface.up ? "up" : "down", interface.loopback ? ", loopback" : "");
    if (!interface.addresses.empty()) detail += ", " + rondo::join(interface.addresses, " ");
    nlohmann::json data = {
        {"up", interface.up}, {"loopback", interface.loopback}, {"addresses", interface.addresses}};
    const std::string speed = first_line("/sys/class/net/" + name + "/speed");
    if (!speed.empty() && speed[0] != '-') {
      detail += ", " + speed + " Mbit/s";
      data["mbit_per_s"] = std::stoi(speed);
    }
    findings.push_back({"network", name, State::ok, detail, "", std::move(data)});
  }
  if (findings.empty()) {
    findings.push_back({"network", "interfaces", State::warning, "none found", "ip link set lo up", nullptr});
  }
  return findings;
}

}  // namespace doctor

namespace doctor {

using rondo::str;

Findings check_schedulers() {
  Findings findings;
  struct Program {
    const char* name;
    const char* scheduler;
    const char* get;
  };
  for (const Program& program :
       {Program{"srun", "Slurm", "apt-get install slurm-client"},
        Program{"mpirun", "Open MPI", "apt-get install openmpi-bin"},
        Program{"kubectl", "Kubernetes", "https://kubernetes.io/docs/tasks/tools"}}) {
    const std::string path = which(program.name);
    findings.push_back({"schedulers",
                        program.scheduler,
                        path.empty() ? State::missing : State::ok,
                        path.empty() ? str(program.name, " is not installed (optional)") : path,
                        path.empty() ? program.get : "",
                        {{"program", program.name}, {"path", path}}});
  }
  try {
    const rondo::env::Identity self = rondo::env::discover_process();
    std::string detail = self.launcher == "none"
                             ? "no launcher: one process"
                             : str("rank ", self.rank, " of ", self.world_size, ", told by ", self.launcher);
    if (!self.sources_seen.empty())
      detail += str("; variables found of: ", rondo::join(self.sources_seen, ", "));
    findings.push_back({"schedulers",
                        "this process",
                        State::ok,
                        detail,
                        "",
                        {{"launcher", self.launcher},
                         {"rank", self.rank},
                         {"world_size", self.world_size},
                         {"host", self.host},
                         {"sources", self.sources_seen}}});
  } catch (const rondo::Error& error) {
    findings.push_back({"schedulers",
                        "this process",
                        State::warning,
                        error.what(),
                        "correct the variables that the message names",
                        {{"error", error.what()}}});
  }
  return findings;
}

}  // namespace doctor
