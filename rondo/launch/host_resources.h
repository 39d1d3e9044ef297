#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rondo/launch/run_options.h"

namespace rondo::launch {

// Returns the number of GPUs visible to a program of this process: /dev/nvidia<number>, limited by
// CUDA_VISIBLE_DEVICES.
int gpu_count();

// Returns the CPU quota of this process's control groups, in processors: 1.5 means 150 ms per 100 ms. The
// minimum over its group and the groups above it, in version 1 (cpu.cfs_quota_us) and version 2 (cpu.max).
// Empty without a limit. Containers have such a quota although all processors of the host are visible. `root`
// is the folder that contains /proc and /sys. Thread-safe.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// The processors that this process may use, grouped by locality.
struct CpuLayout {
  std::vector<std::vector<int>> cores;  // hardware threads of each core
  std::vector<std::vector<int>> nodes;  // hardware threads of each NUMA node
};

// Returns the layout from sched_getaffinity and /sys. Without topology information: one thread per core and
// one node.
CpuLayout cpu_layout();

// Returns the hardware threads of each of `processes` workers. core: the same number of adjacent cores for
// each worker; with fewer cores than workers, round-robin. numa: whole nodes; workers are split into blocks.
// none: empty lists.
std::vector<std::vector<int>> bind_workers(const CpuLayout& layout, Binding binding, int processes);

// Parses a list such as "0-3,8". Throws Error for anything else.
std::vector<int> parse_cpu_list(const std::string& text);

// Returns the number of processors that this process may use: its cores (sched_getaffinity), limited by its
// control group's CPU quota rounded down, and at least 1.
int usable_processors();

// Returns the number of processes on this host for `text`: a number, `cpu` (usable_processors()), `gpu`
// (gpu_count()), or `auto` (gpu if there are any GPUs, else cpu). Throws UsageError that names `flag` for
// other text, for a number below 1, and for `gpu` if no GPU is visible.
int process_count(const std::string& text, const std::string& flag);

}  // namespace rondo::launch
