#pragma once

#include <filesystem>
#include <optional>

namespace rondo::launch {

// Processor time that this process's control groups allow, in processors: 1.5 is 150 ms of every 100 ms. The
// least of its group and of those above it counts, in version 1 (cpu.cfs_quota_us) as in version 2 (cpu.max).
// Empty without a limit. Containers have such a quota where their hosts' processors are all visible.
// `root` is where /proc and /sys are; any thread.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace rondo::launch
