#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rondo/launch/run_options.h"

namespace rondo::launch {

// GPUs that a program of this process would see: /dev/nvidia<number>, as far as CUDA_VISIBLE_DEVICES allows.
int gpu_count();

// Processor time that this process's control groups allow, in processors: 1.5 is 150 ms of every 100 ms. The
// least of its group and of those above it counts, in version 1 (cpu.cfs_quota_us) as in version 2 (cpu.max).
// Empty without a limit. Containers have such a quota where their hosts' processors are all visible.
// `root` is where /proc and /sys are; any thread.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// The processors this process may use, in the groups that are worth keeping together.
struct CpuLayout {
  std::vector<std::vector<int>> cores;  // hardware threads of each core
  std::vector<std::vector<int>> nodes;  // hardware threads of each NUMA node
};

// Read from sched_getaffinity and /sys; a machine that shows no topology has one thread a core and one node.
CpuLayout cpu_layout();

// Hardware threads for each of `processes` workers. core: neighbouring cores, as many for each; with fewer
// cores than workers they take turns. numa: whole nodes, workers in blocks. none: empty lists.
std::vector<std::vector<int>> bind_workers(const CpuLayout& layout, Binding binding, int processes);

// "0-3,8" as numbers. Throws Error for anything else.
std::vector<int> parse_cpu_list(const std::string& text);

// Number of processors that this process may use: its cores (sched_getaffinity), but not more than its
// control group's quota of processor time allows, rounded down to at least 1.
int usable_processors();

// Number of processes on this host that `text` asks for: a number, `cpu` (usable_processors()), `gpu`
// (gpu_count()), or `auto` (gpu where there are any, else cpu). Throws UsageError that names `flag` for
// another text, for a number below 1 and for `gpu` where no GPU is visible.
int process_count(const std::string& text, const std::string& flag);

}  // namespace rondo::launch
