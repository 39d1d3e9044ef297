#include "rondo/channel/memory_room.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

// A file that holds one number; nothing for "max" and for a file that is not there.
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The number behind `key` in a file of lines "key number".
std::uint64_t read_field(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    fields.imbue(std::locale::classic());
    std::string name;
    std::uint64_t value = 0;
    if (fields >> name >> value && name == key) return value;
  }
  return 0;
}

// Where the two versions keep the same things.
struct Files {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* droppable;  // in memory.stat
};
constexpr Files kVersion1{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                          "total_inactive_file"};
constexpr Files kVersion2{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

class Search {
 public:
  explicit Search(fs::path root) : root_(std::move(root)) {
    const fs::path info = root_ / "proc/meminfo";
    swap_ = read_field(info, "SwapFree:") << 10;
    if (const std::uint64_t available = read_field(info, "MemAvailable:") << 10; available > 0)
      consider(available + swap_, str("what this host has free, ", to_string(Bytes{available + swap_})));
  }

  // The group at `path` and those around it. In a container the path may be the host's and not be there.
  void look_at_groups(const Files& files, fs::path path) {
    const fs::path mount = root_ / files.mount;
    path = path.relative_path();
    while (true) {
      look_at_group(files, mount / path, "/" + path.string());
      if (path.empty()) return;
      path = path.parent_path();
    }
  }

  const MemoryRoom& least() const { return least_; }

 private:
  void look_at_group(const Files& files, const fs::path& group, const std::string& name) {
    const auto limit = read_number(group / files.limit);
    const auto usage = read_number(group / files.usage);
    if (!limit || !usage) return;
    const std::uint64_t droppable = read_field(group / "memory.stat", files.droppable);
    const std::uint64_t used = *usage - std::min(*usage, droppable);
    const std::uint64_t room = *limit - std::min(*limit, used);
    // Without a limit version 1 has a number near the largest there is.
    if (room < std::uint64_t{1} << 60)
      consider(room + swap_, str("the memory limit of cgroup ", name, ", ", to_string(Bytes{*limit}),
                                 " with ", to_string(Bytes{used}), " in use"));
  }

  void consider(std::uint64_t room, std::string limit) {
    if (room < least_.bytes.count) least_ = {Bytes{room}, std::move(limit)};
  }

  fs::path root_;
  std::uint64_t swap_ = 0;
  MemoryRoom least_;
};

}  // namespace

MemoryRoom memory_room(const fs::path& root) {
  Search search(root);
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const std::string path = line.substr(second + 1);
    if (line.starts_with("0::")) search.look_at_groups(kVersion2, path);
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end())
      search.look_at_groups(kVersion1, path);
  }
  return search.least();
}

void require_room(Bytes size, const std::string& what, const MemoryRoom& room) {
  if (size <= room.bytes) return;
  throw Error(
      str("not enough memory for ", what, ": ", to_string(size), " are needed, ", to_string(room.bytes),
          " are left by ", room.limit,
          ". Raise it (docker run --memory, Kubernetes' resources.limits.memory, memory.max of the cgroup), "
          "or start fewer or smaller processes. /dev/shm and docker's --shm-size do not matter here"));
}

}  // namespace rondo
