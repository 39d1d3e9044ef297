#include "rondo/backend/engine/request.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::optional<BackendRequest> request_of_part(const BackendRequest& parent, const std::vector<int>& ranks,
                                              const c10::intrusive_ptr<c10d::Store>& store,
                                              const c10d::Backend::Options& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), parent.rank);
  if (own == ranks.end()) return std::nullopt;
  BackendRequest part = parent;
  part.group_name = options.group_name;
  part.rank = static_cast<int>(own - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  part.store = store;
  part.host_store = {};
  part.timeout = bounded_duration(options.timeout);
  part.world_ranks.clear();
  part.hosts.clear();
  part.host_names.clear();
  for (const int rank : ranks) {
    if (rank < 0 || rank >= parent.size) {
      throw UsageError(str("split of group '", parent.group_name, "': rank ", rank, " is not one of its ",
                           parent.size, " ranks"));
    }
    const auto at = static_cast<std::size_t>(rank);
    part.world_ranks.push_back(parent.world_ranks.empty() ? rank : parent.world_ranks[at]);
    if (!parent.hosts.empty()) part.hosts.push_back(parent.hosts[at]);
    if (!parent.host_names.empty()) part.host_names.push_back(parent.host_names[at]);
  }
  return part;
}

}  // namespace rondo
