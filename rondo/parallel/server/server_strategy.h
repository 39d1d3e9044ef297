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

// What a process that TF_CONFIG makes a worker needs to reach its servers.
struct ServedJob {
  env::Cluster cluster;
  server::ClusterOptions connect;  // as worker cluster.index of cluster.workers.size()
  control::JobSecret secret;
};

// Reads TF_CONFIG and the job's secret for a strategy of that name. `timeout` is the longest wait for a
// server. Throws UsageError when there is no cluster, when this process is a server of it, when the options
// contradict it or themselves, and when there is no secret.
ServedJob read_served_job(const std::string& strategy, const ServerStrategyOptions& options,
                          Duration timeout);

// TF_CONFIG's cluster. Throws UsageError when there is none, or when this process is a server of it.
env::Cluster read_worker_cluster(const std::string& strategy, const env::EnvironmentMap& environment);

class ServedModel;

// Strategy "parameter_server", on a worker. Workers are processes that do not know each other: each trains in
// a context of its own, of one rank, with its share of the data, at its own pace. A step is: pull the
// variables, forward, backward, push the gradients; a server applies them with the optimizer that the worker
// was given. Worker 0 is the chief: its initial values count, it validates and writes checkpoints.
//
// Every parameter is a variable, in float32. Buffers (running statistics of batch norms) stay each worker's
// own; a checkpoint has the chief's. The gradient of a parameter that is sparse (an Embedding with sparse =
// true) travels by rows, and so do the rows that changed.
class ServerStrategy : public ProcessStrategy {
 public:
  // `context` is of one rank. Throws UsageError for a context of several.
  ServerStrategy(Context context, const server::ClusterOptions& options, control::JobSecret secret);
  ~ServerStrategy() override;

  using ProcessStrategy::prepare;
  // Meets the servers; see server::Cluster. Throws UsageError naming a parameter that is not float32.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // One replica in sync, but for synchronous steps. Each worker evaluates by itself.
  ReplicaPlacement placement() const override;

  bool is_chief() const { return options_.worker == 0; }
  int worker() const { return static_cast<int>(options_.worker); }
  const ServerWork* server_work() const override { return &work_; }
  server::ServerFigures figures() const;  // of a prepared model

 protected:
  // Of a strategy with more than one rank a worker.
  ServerStrategy(std::string name, Context context, const server::ClusterOptions& options,
                 control::JobSecret secret);
  // Meets the servers for this worker.
  std::unique_ptr<ServedModel> serve(std::shared_ptr<torch::nn::Module> module);
  const server::ClusterOptions& options() const { return options_; }
  void set_steps_before(std::uint64_t steps) { work_.steps_before = steps; }

 private:
  server::ClusterOptions options_;
  control::JobSecret secret_;
  std::shared_ptr<server::Cluster> cluster_;  // null where another rank of the worker speaks for it
  ServerWork work_;
};

}  // namespace rondo
