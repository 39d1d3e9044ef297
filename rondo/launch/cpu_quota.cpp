#include "rondo/launch/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

#include "rondo/base/text.h"

namespace rondo::launch {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// Empty for "max", -1 and what is no number.
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
  // "HIERARCHY:CONTROLLERS:PATH"; version 2 has no controllers here.
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

}  // namespace rondo::launch
