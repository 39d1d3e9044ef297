#include "rondo/base/machine.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "rondo/base/text.h"

namespace rondo {

std::string machine_name() {
  std::ifstream cpus("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(cpus, line);) {
    const auto colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    model = line.substr(colon + 2);
    break;
  }
  return str(model, ", ", sysconf(_SC_NPROCESSORS_ONLN), " processors");
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::filesystem::path measurement_path(const char* variable, const char* file) {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (auto path = value_of(variable); !path.empty()) return path;
  // A relative one counts as not set, says the XDG base directory specification.
  if (const auto cache = value_of("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "rondo" / file;
  if (const auto home = value_of("HOME"); home.is_absolute()) return home / ".cache" / "rondo" / file;
  return {};
}

}  // namespace rondo
