#include "rondo/parallel/grouped/grouped_strategy.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/grouped/group_place.h"
#include "rondo/parallel/grouped/grouped_options.h"
#include "rondo/parallel/server/server_strategy.h"

namespace rondo {

// The model's parts. Every rank of the group has the whole model once its first rank has pulled it.
class GroupedModel::Parts final : public UndividedModel {
 public:
  explicit Parts(GroupedModel& model) : UndividedModel(model.module(), model.group_), model_(model) {}
  void flush_for(ForwardPasses passes) override {
    model_.replica_->parts().flush_for(passes);
    if (model_.served_) model_.served_->parts().flush_for(passes);
    model_.share();
  }
  void take_values(NewValues values) override {
    if (model_.served_) model_.served_->parts().take_values(values);
  }

 private:
  GroupedModel& model_;
};

GroupedModel::GroupedModel(std::unique_ptr<PreparedModel> replica, std::unique_ptr<ServedModel> served,
                           const Group& group)
    : replica_(std::move(replica)), served_(std::move(served)), group_(group) {
  for (const auto& [name, parameter] : tensors_of(module()).parameters) parameters_.push_back(parameter);
  parts_ = std::make_unique<Parts>(*this);
}

void GroupedModel::share() {
  const at::NoGradGuard no_grad;
  if (group_.size() > 1) broadcast_coalesced(parameters_, group_, /*root=*/0);
}

void GroupedModel::start_pass(const LocalBatch& given) {
  LocalBatch batch = given;
  batch.discard_gradients = false;  // this object freezes the parameters itself
  // Pushes the gradients that the group has reduced in step(), not those of this rank's backward pass.
  LocalBatch told = batch;
  told.optimizer = nullptr;
  if (served_) served_->begin_step(told);
  if (!in_window_) share();
  in_window_ = !batch.synchronise;
  announced_ = false;
  samples_ = static_cast<double>(batch.samples);
  // The reduced gradients are pushed in step(), which the replica does not see.
  LocalBatch combined = batch;
  combined.gradients_are_read = true;
  replica_->begin_step(combined);
}

void GroupedModel::announce(const StepTotals& mine) {
  announced_ = true;
  replica_->announce(mine);
}

void GroupedModel::apply_step(torch::optim::Optimizer& optimizer) {
  // A custom loop that announces nothing is assumed to have equally many samples on all ranks.
  const double samples =
      announced_ ? static_cast<double>(replica_->totals().predictions) : samples_ * group_.size();
  if (!served_) return;
  served_->set_weight(samples);
  served_->step(optimizer);
}

CommunicationTimes GroupedModel::communication_times() const {
  CommunicationTimes times = replica_->communication_times();
  if (!served_) return times;
  const CommunicationTimes between = served_->communication_times();
  return {times.busy + between.busy, times.exposed + between.exposed};
}

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

std::unique_ptr<Strategy> GroupedStrategyFactory::make(const std::string& name, const Context& context,
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

GroupPlace find_group_place(const env::Cluster& cluster, int groups) {
  const auto workers = static_cast<int>(cluster.workers.size());
  if (groups < 1 || workers % groups != 0)
    throw UsageError(str("--ps-groups ", groups, " does not divide the ", workers, " workers of the job"));
  GroupPlace place{.worker = cluster.index, .workers = workers};
  place.ranks = workers / groups;
  place.group = cluster.index / place.ranks;
  place.rank = cluster.index % place.ranks;
  place.meet = cluster.workers[static_cast<std::size_t>(place.group * place.ranks)];
  return place;
}

InitOptions init_options_of_group(int groups, InitOptions options) {
  const GroupPlace place =
      find_group_place(read_worker_cluster("grouped", env::process_environment()), groups);
  options.init_method = str("apart:tcp://", place.meet);
  options.rank = place.rank;
  options.world_size = place.ranks;
  return options;
}

}  // namespace rondo
