#include "rondo/launch/cpu_binding.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::launch {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> read_cpu_list(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  return parse_cpu_list(text);
}

// Those of `group` that are allowed; each CPU is given to one group only.
std::vector<int> take(std::vector<int>& left, const std::vector<int>& group) {
  std::vector<int> taken;
  for (const int cpu : group) {
    const auto found = std::find(left.begin(), left.end(), cpu);
    if (found == left.end()) continue;
    taken.push_back(cpu);
    left.erase(found);
  }
  return taken;
}

void append(std::vector<int>& to, const std::vector<int>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  for (const std::string& range : split(text, ',')) {
    const std::vector<std::string> ends = split(range, '-');
    if (ends.empty() || ends.size() > 2) throw Error("malformed list of CPUs: " + text);
    const long long first = parse_integer(ends.front(), "list of CPUs");
    const long long last = parse_integer(ends.back(), "list of CPUs");
    for (long long cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

CpuLayout cpu_layout() {
  CpuLayout layout;
  const std::vector<int> allowed = allowed_cpus();
  std::vector<int> left = allowed;
  for (const int cpu : allowed) {
    const std::string siblings = str("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list");
    std::vector<int> core = take(left, read_cpu_list(siblings));
    append(core, take(left, {cpu}));
    if (!core.empty()) layout.cores.push_back(std::move(core));
  }
  left = allowed;
  for (int node = 0;; ++node) {
    const std::string directory = str("/sys/devices/system/node/node", node);
    if (!std::filesystem::exists(directory)) break;
    std::vector<int> cpus = take(left, read_cpu_list(directory + "/cpulist"));
    if (!cpus.empty()) layout.nodes.push_back(std::move(cpus));
  }
  if (!left.empty()) layout.nodes.push_back(left);
  return layout;
}

std::vector<std::vector<int>> bind_workers(const CpuLayout& layout, Binding binding, int processes) {
  const auto count = static_cast<std::size_t>(processes);
  std::vector<std::vector<int>> bound(count);
  if (binding == Binding::none) return bound;
  const auto& groups = binding == Binding::core ? layout.cores : layout.nodes;
  if (groups.empty()) return bound;
  const std::size_t share = groups.size() / count;
  for (std::size_t worker = 0; worker < count; ++worker) {
    if (share == 0) {
      // Fewer groups than workers. Nodes are shared by neighbours, cores in turns.
      const bool in_blocks = binding == Binding::numa;
      append(bound[worker], groups[in_blocks ? worker * groups.size() / count : worker % groups.size()]);
    }
    for (std::size_t i = 0; i < share; ++i) append(bound[worker], groups[worker * share + i]);
  }
  return bound;
}

}  // namespace rondo::launch
