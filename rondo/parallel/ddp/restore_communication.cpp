#include "rondo/parallel/ddp/restore_communication.h"

#include "rondo/base/text.h"

namespace rondo {

std::string restore_communication(DistributedDataParallel& ddp, const std::vector<CommState>& of_ranks) {
  const Group& group = ddp.group();
  if (of_ranks.empty()) return "is not there";
  if (of_ranks.size() != static_cast<std::size_t>(group.size()))
    return str("is of ", of_ranks.size(), " ranks, this run has ", group.size());
  const CommState& own = of_ranks[static_cast<std::size_t>(group.rank())];
  std::string incompatibility = ddp.communication_incompatibility(own);
  if (incompatibility.empty()) ddp.load_communication_state(own);
  return incompatibility;
}

}  // namespace rondo
