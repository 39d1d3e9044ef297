#include "rondo/backend/hierarchical/transports.h"

#include <algorithm>
#include <map>

namespace rondo::hierarchical {

HostMap::HostMap(const std::vector<std::string>& hosts, int rank) : rank_(rank) {
  std::map<std::string, int> numbers;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const auto [entry, is_new] = numbers.try_emplace(hosts[r], static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<std::size_t>(entry->second)];
    host_of_.push_back(entry->second);
    local_rank_of_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(r));
  }
}

int HostMap::smallest_host() const {
  int smallest = host_size(0);
  for (int host = 1; host < host_count(); ++host) smallest = std::min(smallest, host_size(host));
  return smallest;
}

bool HostMap::even() const { return smallest_host() * host_count() == world_size(); }

}  // namespace rondo::hierarchical
