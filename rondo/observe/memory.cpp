#include "rondo/observe/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

namespace rondo {
namespace {

// Value of a line such as "RssAnon:    1234 kB"; 0 when the line is not of that name.
Bytes kilobytes_of(const std::string& line, std::string_view name) {
  if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') return {};
  return KiB(std::strtoull(line.c_str() + name.size() + 1, nullptr, 10));
}

// Sum of the lines of /proc/self/status with these names.
Bytes status_sum(std::initializer_list<std::string_view> names) {
  std::ifstream status("/proc/self/status");
  Bytes total;
  for (std::string line; std::getline(status, line);) {
    for (const std::string_view name : names) total = total + kilobytes_of(line, name);
  }
  return total;
}

}  // namespace

Bytes peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return KiB(static_cast<std::uint64_t>(usage.ru_maxrss));
}

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    memory.rss = memory.rss + kilobytes_of(line, "Rss");
    memory.pss = memory.pss + kilobytes_of(line, "Pss");
  }
  memory.peak_rss = std::max(peak_rss(), memory.rss);
  return memory;
}

Bytes private_memory() { return status_sum({"RssAnon"}); }

Bytes MemoryMeter::sample() {
  peak_ = std::max(peak_, tracked_ ? tracked_() : status_sum({"RssAnon", "RssShmem"}));
  return peak_;
}

Bytes MemoryMeter::sample_pss() {
  peak_pss_ = std::max(peak_pss_, process_memory().pss);
  return peak_pss_;
}

}  // namespace rondo
