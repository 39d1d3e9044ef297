#include "apps/bench/step/process_figures.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "rondo/base/bytes.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

// Lines such as "RssAnon:    1234 kB" of a file below /proc/PROCESS.
std::map<std::string, std::uint64_t> sizes_in(pid_t process, const char* name) {
  std::ifstream file(str("/proc/", process, "/", name));
  std::map<std::string, std::uint64_t> sizes;
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.ends_with(" kB")) continue;
    sizes[line.substr(0, colon)] = KiB(std::strtoull(line.c_str() + colon + 1, nullptr, 10)).count;
  }
  return sizes;
}

}  // namespace

ResidentMemory resident_memory(pid_t process) {
  auto status = sizes_in(process, "status");
  auto rollup = sizes_in(process, "smaps_rollup");
  return {rollup["Pss"], status["RssAnon"] + status["RssFile"] + rollup["Pss_Shmem"]};
}

std::uint64_t bytes_sent(pid_t process, const std::string& interface) {
  std::ifstream file(str("/proc/", process, "/net/dev"));
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || trim(line.substr(0, colon)) != interface) continue;
    // Eight figures of what was received come first.
    std::istringstream figures(line.substr(colon + 1));
    std::uint64_t value = 0;
    for (int column = 0; column < 9; ++column) figures >> value;
    return value;
  }
  return 0;
}

}  // namespace rondo::bench
