#pragma once

#include <memory>

#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/grouped/group_place.h"
#include "rondo/parallel/replicated/ddp_strategy.h"
#include "rondo/parallel/server/server_strategy.h"

namespace rondo {

// Strategy "grouped", on one rank of a group: ddp within the group, which is one worker of parameter servers.
// The first rank of each group speaks with the servers; group 0 is the chief, whose ranks validate together
// and whose first rank writes checkpoints.
class GroupedStrategy final : public ServerStrategy {
 public:
  // `context` is of the ranks of the group (init_options_of_group), `connect` of the group as a worker.
  // Throws UsageError for another context, naming both.
  GroupedStrategy(const Context& context, const server::ClusterOptions& connect, control::JobSecret secret,
                  const GroupPlace& place, const DdpStrategyOptions& within);

  using ServerStrategy::prepare;
  // Collective within the group; its first rank meets the servers.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  ReplicaPlacement placement() const override;

 private:
  GroupPlace place_;
  DdpStrategy within_;
};

}  // namespace rondo
