#include "rondo/parallel/server/served_job.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"

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
  if (connect.codec != "none") collective::make_codec(connect.codec);  // before anybody is met
  auto secret = control::JobSecret::require(
      [&](std::string_view variable) { return env::lookup(environment, variable); });
  return {std::move(cluster), std::move(connect), std::move(secret)};
}

}  // namespace rondo
