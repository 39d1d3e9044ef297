#pragma once

#include <memory>
#include <string>

#include "rondo/control/secret.h"
#include "rondo/parallel/server/server_options.h"
#include "rondo/server/cluster.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

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
  // Gradients that are combined in a step: 1, but for synchronous steps.
  int num_replicas_in_sync() const override;
  InputShard input_shard() const override;
  InputShard evaluation_shard() const override { return {}; }

  bool is_chief() const { return options_.worker == 0; }
  int worker() const { return static_cast<int>(options_.worker); }
  // What follows needs a prepared model. Steps of this worker that were done before it was started again.
  std::uint64_t steps_before() const override { return steps_before_; }
  bool is_served() const override { return true; }
  void wait_for_others() override;
  server::ServerFigures figures() const;

 protected:
  // Of a strategy with more than one rank a worker.
  ServerStrategy(std::string name, Context context, const server::ClusterOptions& options,
                 control::JobSecret secret);
  // Meets the servers for this worker.
  std::unique_ptr<ServedModel> serve(std::shared_ptr<torch::nn::Module> module);
  const server::ClusterOptions& options() const { return options_; }
  void set_steps_before(std::uint64_t steps) { steps_before_ = steps; }

 private:
  server::ClusterOptions options_;
  control::JobSecret secret_;
  std::shared_ptr<server::Cluster> cluster_;  // null where another rank of the worker speaks for it
  std::uint64_t steps_before_ = 0;
};

}  // namespace rondo
