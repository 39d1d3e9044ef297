#include "rondo/train/memory_checkpoint_hosts.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/train/agreement.h"

namespace rondo {

MemoryCheckpointHosts::MemoryCheckpointHosts(const Context& context, const std::filesystem::path& root)
    : rank_(context.rank()) {
  std::string directory;  // unique among the directories of all hosts
  run_agreed(context, [&] {
    std::error_code code;
    std::filesystem::create_directories(root, code);
    struct stat status {};
    if (::stat(root.c_str(), &status) != 0)
      throw Error(str("cannot create ", root.string(), ": ", code ? code.message() : errno_text(errno)));
    // The launcher's part of the path is random.
    directory = str(root.string(), "|", status.st_dev, "|", status.st_ino);
  });
  std::map<std::string, int> numbers;
  for (const nlohmann::json& told : all_gather_object(directory, context.world())) {
    const auto [entry, is_new] = numbers.emplace(told.get<std::string>(), count());
    if (is_new) ranks_.emplace_back();
    ranks_[static_cast<std::size_t>(entry->second)].push_back(static_cast<int>(host_of_.size()));
    host_of_.push_back(entry->second);
  }
}

int MemoryCheckpointHosts::partner(int rank) const {
  const std::vector<int>& own = ranks(host_of(rank));
  const std::vector<int>& next = ranks((host_of(rank) + 1) % count());
  const auto place = static_cast<std::size_t>(std::find(own.begin(), own.end(), rank) - own.begin());
  return next[place % next.size()];
}

}  // namespace rondo
