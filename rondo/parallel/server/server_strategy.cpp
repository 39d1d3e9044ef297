#include "rondo/parallel/server/server_strategy.h"

#include <torch/nn/module.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/server/served_job.h"
#include "rondo/parallel/server/served_model.h"

namespace rondo {

ServerStrategy::ServerStrategy(Context context, const server::ClusterOptions& options,
                               control::JobSecret secret)
    : ServerStrategy("parameter_server", std::move(context), options, std::move(secret)) {
  const int world_size = this->context().world_size();
  if (world_size == 1) return;
  throw UsageError(str("strategy parameter_server trains in a context of one rank on each worker, not of ",
                       world_size, "; make it with init({.init_method = \"alone\"})"));
}

ServerStrategy::ServerStrategy(std::string name, Context context, const server::ClusterOptions& options,
                               control::JobSecret secret)
    : ProcessStrategy(std::move(name), std::move(context)), options_(options), secret_(std::move(secret)) {}

ServerStrategy::~ServerStrategy() = default;

std::unique_ptr<PreparedModel> ServerStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return serve(std::move(module));
}

std::unique_ptr<ServedModel> ServerStrategy::serve(std::shared_ptr<torch::nn::Module> module) {
  cluster_ = std::make_shared<server::Cluster>(options_, secret_, ServedModel::variables_of(*module));
  work_ = {.steps_before = cluster_->clock(),
           .wait_for_others = [cluster = cluster_] { cluster->wait_for_others(); }};
  return std::make_unique<ServedModel>(std::move(module), cluster_, is_chief());
}

ReplicaPlacement ServerStrategy::placement() const {
  const int in_sync = options_.server.mode == server::Mode::sync
                          ? static_cast<int>(options_.server.workers - options_.server.backup_workers)
                          : 1;
  return {.num_replicas_in_sync = in_sync,
          .input = {worker(), static_cast<int>(options_.server.workers)},
          .replicas = context().world()};
}

server::ServerFigures ServerStrategy::figures() const { return cluster_->all_figures(); }

std::unique_ptr<Strategy> ServerFolder::make(const std::string& name, const Context& context,
                                             const ServerStrategyOptions& options) {
  ServedJob job = read_served_job(name, options, context.timeout());
  return std::make_unique<ServerStrategy>(context, job.connect, std::move(job.secret));
}

}  // namespace rondo
