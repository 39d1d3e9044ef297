#include "rondo/train/gathered_states.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/text.h"
#include "rondo/strategy/shard_directory.h"

namespace rondo {

std::vector<CommunicationState> gather_states(const CommunicationState& own, const Group& group) {
  // Each is a tensor that one rank has.
  std::vector<Shard> held;
  for (const auto& [name, tensor] : own) held.push_back(full_shard(str(group.rank(), "/", name), tensor));
  const ShardDirectory directory(std::move(held), group);
  if (directory.names().empty()) return {};
  std::vector<CommunicationState> states;
  if (group.rank() == 0) states.resize(static_cast<std::size_t>(group.size()));
  std::vector<Shard> wanted;
  for (const std::string& name : directory.names()) {
    if (group.rank() != 0) break;
    Shard shard = directory.sample(name);
    shard.local = at::empty(shard.sizes, directory.dtype(name));
    const std::size_t slash = name.find('/');
    states[std::stoul(name)].emplace(name.substr(slash + 1), shard.local);
    wanted.push_back(std::move(shard));
  }
  directory.fetch(wanted);
  return states;
}

}  // namespace rondo
