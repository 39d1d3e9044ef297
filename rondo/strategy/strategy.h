#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/precision/options.h"
#include "rondo/strategy/distributed_dataset.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/replica_value.h"
#include "rondo/strategy/training.h"

namespace rondo {

// The part of every global batch that a process reads: reader `index` of `count`.
struct InputShard {
  int index = 0;     // from 0 to count - 1
  int count = 1;     // number of readers
  int replicas = 1;  // replicas of this process, which share its batch
};

// The place of a process among the replicas of a strategy.
struct ReplicaPlacement {
  // Number of model replicas whose gradients are combined in one step; the global batch is this many local
  // batches.
  int num_replicas_in_sync = 1;
  InputShard input = {};       // shard that this process reads
  InputShard evaluation = {};  // shard of validation data, among the processes that evaluate together
  // The ranks over which replicas' figures are summed to those of the job: all ranks of context() or, if a
  // replica is divided among ranks, those that hold the same part as this rank.
  Group replicas = {};
  // Whether run() calls a step once for all replicas of this process, with their joint batch.
  bool joins_batches = false;
};

// The work of a process that trains at its own pace as a worker of parameter servers.
struct ServerWork {
  std::uint64_t steps_before = 0;  // steps that this worker did before its restart
  // Blocks until all other workers have finished their last step.
  std::function<void()> wait_for_others = {};
};

// A way to distribute training over processes and devices. This interface hides all differences between one
// process, replication, sharding and parameter servers from the trainer. Methods are collective (every rank
// calls them in the same order) unless they are const. An object is used by one thread.
//
// A strategy with one replica per process derives from ProcessStrategy and implements prepare(module). Others
// implement prepare(Recipe), placement() and run().
class Strategy {
 public:
  class Scope;

  // `name` is the name in the registry. Without a context, calls that need one throw.
  Strategy(std::string name, std::optional<Context> context)
      : name_(std::move(name)), context_(std::move(context)) {}
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  const std::string& name() const { return name_; }  // name in the registry
  // Returns the context given to the constructor or to the last rebuild(). Throws UsageError if there is
  // none.
  const Context& context() const;

  // Returns the place of this process among the replicas.
  virtual ReplicaPlacement placement() const = 0;
  // Return the fields of placement().
  int num_replicas_in_sync() const { return placement().num_replicas_in_sync; }
  InputShard input_shard() const { return placement().input; }            // shard that this process reads
  InputShard evaluation_shard() const { return placement().evaluation; }  // shard of validation data
  Group replicas() const { return placement().replicas; }  // ranks over which replicas are summed

  // Prepares the model that `recipe` creates. Afterwards all replicas have the parameters and buffers of rank
  // 0's first replica, and Training runs the steps. Throws MismatchError naming the first parameter whose
  // shape or dtype differs between ranks.
  virtual std::unique_ptr<Training> prepare(const Recipe& recipe) = 0;

  // Prepares `module` for a custom loop around one replica; PreparedModel describes how gradients are
  // combined. Call it before the optimizer is constructed. Throws UsageError if the strategy does not run one
  // whole loop per process, and MismatchError as above.
  virtual std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module);

  // Moves the strategy to another world: other ranks or another number of them. Models prepared before do not
  // change: see Training::rebuild(), which calls this. Throws UsageError, without changes, if the strategy
  // does not support it or its options do not fit the world.
  virtual void rebuild(const Context& context);

  // Returns this process's work if parameter servers hold the weights; null for other strategies.
  virtual const ServerWork* server_work() const { return nullptr; }
  bool is_served() const { return server_work() != nullptr; }  // whether servers hold the weights
  // Returns ServerWork::steps_before, after prepare(); 0 for other strategies.
  std::uint64_t steps_before() const { return is_served() ? server_work()->steps_before : 0; }
  // Blocks until all other workers of servers have finished their last step; returns at once for other
  // strategies. Not collective: for a worker with work left at the end, such as the last validation.
  void wait_for_others() const {
    if (is_served() && server_work()->wait_for_others) server_work()->wait_for_others();
  }

  // Makes later calls of prepare() cast by this policy and keep the weights that the optimizer updates in the
  // dtype of the given model. Returns false, without effect, if the strategy does not support it. Throws
  // UsageError if it already has another policy.
  virtual bool set_mixed_precision(const MixedPrecisionPolicy& /*policy*/) { return false; }

  // Calls `step` once for each replica of this process with the replica's index among num_replicas_in_sync(),
  // in a ReplicaContext. Replicas of one process run concurrently; inside, members of this strategy's
  // Training refer to the calling replica. Rethrows an exception with the replica's index.
  virtual ReplicaValue run(const std::function<at::Tensor(int replica)>& step) = 0;
  // Calls `step` with inputs[i] for the i-th replica of this process, as DistributedDataset returns them.
  ReplicaValue run(const std::function<at::Tensor(const Batch&)>& step, std::span<const Batch> inputs);

  // Combines `value` over all replicas; every rank gets the result. Without `axis` tensors of one shape are
  // combined element by element. With `axis` that dimension is reduced too. Its length may differ between
  // replicas (a smaller last batch), and AVG divides by the true number of elements. Operations with axis:
  // SUM, AVG, MIN, MAX.
  at::Tensor reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis = {});

  // Concatenates `value` over all replicas in replica order along `axis`, whose length may differ between
  // them.
  at::Tensor gather(const ReplicaValue& value, std::int64_t axis);

  // Returns the tensors of `value` on this process, in replica order.
  std::vector<at::Tensor> local_results(const ReplicaValue& value) const { return value.tensors(); }

  // Returns batches for the replicas: of a data set in memory, of files, or of a function that creates the
  // input of each pipeline. options.shard divides samples among processes. Collective. Throws UsageError if
  // the number of replicas does not divide the global batch, and for sharding by file with fewer files than
  // processes.
  std::unique_ptr<DistributedDataset> distribute(std::shared_ptr<const Dataset> data,
                                                 const DistributeOptions& options);
  // Likewise.
  std::unique_ptr<DistributedDataset> distribute(const DatasetFiles& files, const DistributeOptions& options);
  // Likewise.
  std::unique_ptr<DistributedDataset> distribute(
      const std::function<PipelineInput(const InputContext&)>& input);

  // Makes this the strategy that Strategy::current() returns on this thread while the result lives.
  [[nodiscard]] Scope scope();
  // Returns the innermost scope's strategy on this thread, or null.
  static Strategy* current();
  // Returns current(), or the default strategy outside every scope.
  static Strategy& current_or_default();

 protected:
  // Sets the context, for rebuild() of strategies that support another world.
  void set_context(const Context& context) { context_ = context; }

 private:
  friend class StrategyReference;

  // Throws UsageError if the value does not have one tensor for each call of run() in this process.
  static const std::vector<at::Tensor>& checked(const ReplicaValue& value, const ReplicaPlacement& placement,
                                                const std::string& name);

  std::string name_;
  std::optional<Context> context_;
  std::shared_ptr<const void> lifetime_ = std::make_shared<const char>();  // expires with the strategy
};

// The result of Strategy::scope(), whose end ends the scope. It must stay on its thread.
class Strategy::Scope {
 public:
  explicit Scope(Strategy* strategy);  // null: no strategy is current
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Strategy* outer_;
};

}  // namespace rondo
