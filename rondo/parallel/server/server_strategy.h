#pragma once

#include <memory>
#include <string>

#include "rondo/base/time.h"
#include "rondo/control/secret.h"
#include "rondo/env/cluster.h"
#include "rondo/parallel/server/server_options.h"
#include "rondo/server/cluster.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// Data that a worker process needs to connect to its servers, from TF_CONFIG.
struct ServedJob {
  env::Cluster cluster;
  server::ClusterOptions connect;  // for worker cluster.index of cluster.workers.size()
  control::JobSecret secret;
};

// Reads TF_CONFIG and the job's secret for a strategy of that name. `timeout` applies to waits for a server.
// Throws UsageError if there is no cluster, if this process is a server of it, if the options contradict it
// or each other, or if there is no secret.
ServedJob read_served_job(const std::string& strategy, const ServerStrategyOptions& options,
                          Duration timeout);

// Returns TF_CONFIG's cluster. Throws UsageError if there is none, or if this process is a server of it.
env::Cluster read_worker_cluster(const std::string& strategy, const env::EnvironmentMap& environment);

class ServedModel;

// Strategy "parameter_server", on a worker. Workers are independent processes: each trains in a context of
// one rank, with its share of the data, at its own pace. A step pulls the variables, runs forward and
// backward, and pushes the gradients. A server applies them with the worker's optimizer. Worker 0 is the
// chief: it provides the initial values, validates and writes checkpoints.
//
// Every parameter is a variable, in float32. Buffers (running statistics of batch norms) are local to each
// worker; a checkpoint has the chief's. Sparse gradients (of an Embedding with sparse = true) are pushed by
// rows, and only changed rows are pulled.
class ServerStrategy : public ProcessStrategy {
 public:
  // `context` must have one rank; otherwise throws UsageError.
  ServerStrategy(Context context, const server::ClusterOptions& options, control::JobSecret secret);
  ~ServerStrategy() override;

  using ProcessStrategy::prepare;
  // Connects to the servers; see server::Cluster. Throws UsageError naming a parameter that is not float32.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // Reports one replica in sync, except for synchronous steps. Each worker evaluates by itself.
  ReplicaPlacement placement() const override;

  bool is_chief() const { return options_.worker == 0; }
  int worker() const { return static_cast<int>(options_.worker); }
  const ServerWork* server_work() const override { return &work_; }
  // Returns the servers' figures. Requires a prepared model.
  server::ServerFigures figures() const;

 protected:
  // For a strategy with several ranks per worker.
  ServerStrategy(std::string name, Context context, const server::ClusterOptions& options,
                 control::JobSecret secret);
  // Connects this worker to the servers.
  std::unique_ptr<ServedModel> serve(std::shared_ptr<torch::nn::Module> module);
  const server::ClusterOptions& options() const { return options_; }
  void set_steps_before(std::uint64_t steps) { work_.steps_before = steps; }

 private:
  server::ClusterOptions options_;
  control::JobSecret secret_;
  std::shared_ptr<server::Cluster> cluster_;  // null if another rank of the worker is connected
  ServerWork work_;
};

}  // namespace rondo
