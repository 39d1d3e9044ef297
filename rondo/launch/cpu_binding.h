#pragma once

#include <string>
#include <vector>

#include "rondo/launch/run_options.h"

namespace rondo::launch {

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

}  // namespace rondo::launch
