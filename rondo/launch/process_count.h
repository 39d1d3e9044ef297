#pragma once

#include <string>

namespace rondo::launch {

// Number of processors that this process may use: its cores (sched_getaffinity), but not more than its
// control group's quota of processor time allows, rounded down to at least 1.
int usable_processors();

// Number of processes on this host that `text` asks for: a number, `cpu` (usable_processors()), `gpu`
// (gpu_count()), or `auto` (gpu where there are any, else cpu). Throws UsageError that names `flag` for
// another text, for a number below 1 and for `gpu` where no GPU is visible.
int process_count(const std::string& text, const std::string& flag);

}  // namespace rondo::launch
