#include "rondo/parallel/server/server_strategy.h"

#include <torch/nn/module.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/parallel/server/served_model.h"

namespace rondo {
namespace {

server::Mode mode_of(const std::string& name) {
  if (name == "async") return server::Mode::async;
  if (name == "sync") return server::Mode::sync;
  if (name == "ssp") return server::Mode::ssp;
  throw UsageError(str("server mode ", name, " is not one of async, ssp, sync"));
}

void check_count(const char* flag, std::optional<int> given, std::size_t there) {
  if (given && static_cast<std::size_t>(*given) != there)
    throw UsageError(str(flag, " ", *given, " contradicts TF_CONFIG, which lists ", there));
}

}  // namespace

env::Cluster read_worker_cluster(const std::string& strategy, const env::EnvironmentMap& environment) {
  const auto cluster = env::read_cluster(environment);
  if (!cluster) {
    throw UsageError(str("strategy ", strategy,
                         " needs servers: start the program with rondo run --ps 1 --workers 2, or with rondo "
                         "train, or describe the cluster in TF_CONFIG"));
  }
  if (cluster->is_server) {
    throw UsageError(
        str("TF_CONFIG makes this process a parameter server (ps ", cluster->index, "), not a worker"));
  }
  return *cluster;
}

ServedJob read_served_job(const std::string& strategy, const ServerStrategyOptions& options,
                          Duration timeout) {
  if (options.staleness < 0) throw UsageError(str("ps-staleness ", options.staleness, " is below zero"));
  if (options.backup_workers < 0)
    throw UsageError(str("ps-backup-workers ", options.backup_workers, " is below zero"));
  if (options.placement != "round_robin" && options.placement != "by_size")
    throw UsageError(str("ps-placement ", options.placement, " is not one of by_size, round_robin"));
  const env::EnvironmentMap environment = env::process_environment();
  env::Cluster cluster = read_worker_cluster(strategy, environment);
  check_count("--ps", options.ps, cluster.servers.size());
  check_count("--workers", options.workers, cluster.workers.size());
  server::ClusterOptions connect;
  connect.addresses = cluster.servers;
  connect.worker = static_cast<std::uint32_t>(cluster.index);
  connect.server = {.mode = mode_of(options.server_mode),
                    .workers = static_cast<std::uint32_t>(cluster.workers.size()),
                    .staleness = static_cast<std::uint32_t>(options.staleness),
                    .backup_workers = static_cast<std::uint32_t>(options.backup_workers)};
  connect.partitioner = server::Partitioner::parse(options.partitioner, "ps-partitioner");
  connect.placement =
      options.placement == "by_size" ? server::Placement::by_size : server::Placement::round_robin;
  connect.timeout = timeout;
  connect.codec = options.push_codec;
  collective::make_codec(connect.codec);  // checked before connecting
  auto secret = control::JobSecret::require(
      [&](std::string_view variable) { return env::lookup(environment, variable); });
  return {std::move(cluster), std::move(connect), std::move(secret)};
}

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

std::unique_ptr<Strategy> ServerStrategyFactory::make(const std::string& name, const Context& context,
                                                      const ServerStrategyOptions& options) {
  ServedJob job = read_served_job(name, options, context.timeout());
  return std::make_unique<ServerStrategy>(context, job.connect, std::move(job.secret));
}

}  // namespace rondo
