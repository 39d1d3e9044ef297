#include "rondo/parallel/grouped/grouped_strategy.h"

#include <torch/nn/module.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/grouped/grouped_model.h"
#include "rondo/parallel/grouped/grouped_options.h"
#include "rondo/parallel/server/served_job.h"

namespace rondo {

GroupedStrategy::GroupedStrategy(const Context& context, const server::ClusterOptions& connect,
                                 control::JobSecret secret, const GroupPlace& place,
                                 const DdpStrategyOptions& within)
    : ServerStrategy("grouped", context, connect, std::move(secret)),
      place_(place),
      within_(context, within) {
  if (context.world_size() == place.ranks && context.rank() == place.rank) return;
  throw UsageError(str("strategy grouped trains in a context of the ranks of a group, in which worker ",
                       place.worker, " is rank ", place.rank, " of ", place.ranks, ", not in one of ",
                       context.world_size(), "; make it with init(init_options_of_group(groups))"));
}

ReplicaPlacement GroupedStrategy::placement() const {
  ReplicaPlacement placement = ServerStrategy::placement();
  placement.num_replicas_in_sync *= context().world_size();
  placement.input = {place_.worker, place_.workers};
  placement.evaluation = {context().rank(), context().world_size()};
  return placement;
}

std::unique_ptr<PreparedModel> GroupedStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  std::unique_ptr<ServedModel> served;
  if (context().rank() == 0) served = serve(module);
  set_steps_before(broadcast_object(steps_before(), context().world()).get<std::uint64_t>());
  return std::make_unique<GroupedModel>(within_.prepare(std::move(module)), std::move(served),
                                        context().world());
}

std::unique_ptr<Strategy> GroupedFolder::make(const std::string& name, const Context& context,
                                              const GroupedOptions& options) {
  ServedJob job = read_served_job(name, options, context.timeout());
  const GroupPlace place = find_group_place(job.cluster, options.groups);
  if (job.connect.server.backup_workers >= static_cast<std::uint32_t>(options.groups)) {
    throw UsageError(str("ps-backup-workers ", job.connect.server.backup_workers, " leaves none of ",
                         options.groups, " groups to wait for"));
  }
  job.connect.worker = static_cast<std::uint32_t>(place.group);
  job.connect.server.workers = static_cast<std::uint32_t>(options.groups);
  return std::make_unique<GroupedStrategy>(context, job.connect, std::move(job.secret), place, options);
}

}  // namespace rondo
