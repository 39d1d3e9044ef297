#include "rondo/launch/host_resources.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::launch {

int gpu_count() {
  int devices = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    const bool is_gpu = name.starts_with("nvidia") && name.size() > 6 &&
                        name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (is_gpu) ++devices;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return devices;
  int allowed = 0;
  for (const std::string& device : split(visible, ',')) {
    if (device.empty() || device.starts_with("-")) break;  // CUDA stops at the first invalid entry
    ++allowed;
  }
  return std::min(devices, allowed);
}

namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// Parses a positive number; empty for "max", -1 and text that is not a number.
std::optional<double> positive(const std::string& text) {
  long long value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value > 0 ? std::optional(static_cast<double>(value)) : std::nullopt;
}

std::optional<double> quota_of(const std::optional<double>& microseconds,
                               const std::optional<double>& period) {
  if (!microseconds || !period) return std::nullopt;
  return *microseconds / *period;
}

std::optional<double> quota_in(const fs::path& group, bool is_version_2) {
  if (!is_version_2)
    return quota_of(positive(first_line(group / "cpu.cfs_quota_us")),
                    positive(first_line(group / "cpu.cfs_period_us")));
  std::istringstream words(first_line(group / "cpu.max"));
  std::string quota, period;
  words >> quota >> period;
  return quota_of(positive(quota), positive(period));
}

void take_least(std::optional<double>& least, const std::optional<double>& other) {
  if (other) least = std::min(least.value_or(*other), *other);
}

// Returns the smallest quota of `group`, a path below `mount`, and of all groups above it.
std::optional<double> quota_up_from(const fs::path& mount, const fs::path& group, bool is_version_2) {
  std::optional<double> least = quota_in(mount, is_version_2);
  fs::path directory = mount;
  for (const fs::path& name : group.relative_path()) {
    directory /= name;
    take_least(least, quota_in(directory, is_version_2));
  }
  return least;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::optional<double> least;
  std::ifstream groups(root / "proc/self/cgroup");
  // Format: "HIERARCHY:CONTROLLERS:PATH"; cgroup version 2 has no controllers here.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"", "unified"}) take_least(least, quota_up_from(mounts / mount, group, true));
    } else if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      for (const char* mount : {"cpu", "cpu,cpuacct"})
        take_least(least, quota_up_from(mounts / mount, group, false));
    }
  }
  return least;
}

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

// Moves the CPUs of `group` that are still in `left` to the result, so that each CPU is in one group only.
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
      // Fewer groups than workers: consecutive workers share a NUMA node; cores are assigned round-robin.
      const bool in_blocks = binding == Binding::numa;
      append(bound[worker], groups[in_blocks ? worker * groups.size() / count : worker % groups.size()]);
    }
    for (std::size_t i = 0; i < share; ++i) append(bound[worker], groups[worker * share + i]);
  }
  return bound;
}

namespace {

constexpr long long kMostProcesses = 1'000'000;

}  // namespace

int usable_processors() {
  const int cores = std::max(1, static_cast<int>(cpu_layout().cores.size()));
  const auto quota = cpu_quota();
  return quota ? std::clamp(static_cast<int>(*quota), 1, cores) : cores;
}

int process_count(const std::string& text, const std::string& flag) {
  if (text == "cpu") return usable_processors();
  const int gpus = gpu_count();
  if (text == "auto") return gpus > 0 ? gpus : usable_processors();
  if (text == "gpu") {
    if (gpus == 0)
      throw UsageError(str(flag, " gpu: no GPU is visible (/dev/nvidia*, CUDA_VISIBLE_DEVICES)"));
    return gpus;
  }
  if (text.empty() || text.find_first_not_of("-0123456789") != std::string::npos)
    throw UsageError(str(flag, " ", text, " is not a number, auto, cpu or gpu"));
  const long long count = parse_integer(text, flag);
  if (count < 1 || count > kMostProcesses) throw UsageError(str(flag, " ", text, " must be at least 1"));
  return static_cast<int>(count);
}

}  // namespace rondo::launch
