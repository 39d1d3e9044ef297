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

// Which part of every global batch a process reads: rank `index` of `count` readers.
struct InputShard {
  int index = 0;     // from 0 to count - 1
  int count = 1;     // readers
  int replicas = 1;  // of this process: what it reads at a time is divided among them
};

// The place of a process among the replicas of a strategy.
struct ReplicaPlacement {
  // Replicas of the model whose gradients are combined in one step; the global batch is this many local
  // batches.
  int num_replicas_in_sync = 1;
  InputShard input = {};       // what this process reads
  InputShard evaluation = {};  // the same of validation data: among the processes that evaluate together
  // The ranks among which replicas are counted: figures of all of them add up to those of the job. All of
  // context() unless a replica is divided among ranks; then those with the same part as this one.
  Group replicas = {};
  bool joins_batches =
      false;  // run() calls a step once for all replicas of this process, with their joint batch
};

// A process that trains at its own pace, as one of the workers of parameter servers.
struct ServerWork {
  std::uint64_t steps_before = 0;  // that it did before it was started again
  // Returns when all others have done their last step.
  std::function<void()> wait_for_others = {};
};

// How training is spread over processes and devices. Everything that differs between one process,
// replication, sharding or parameter servers is behind this interface; the trainer knows nothing else.
// Methods are collective (every rank calls them in the same order) unless they are const. One thread uses an
// object.
//
// A strategy with one replica a process derives from ProcessStrategy and implements prepare(module). Others
// implement prepare(Recipe), placement() and run().
class Strategy {
 public:
  class Scope;

  // `name` as the registry knows it. Without a context nothing that needs one can be asked.
  Strategy(std::string name, std::optional<Context> context)
      : name_(std::move(name)), context_(std::move(context)) {}
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  const std::string& name() const { return name_; }  // under which the registry knows it
  // The context that it was made with, or that of the last rebuild(). Throws UsageError where there is none.
  const Context& context() const;

  // Returns the place of this process among the replicas.
  virtual ReplicaPlacement placement() const = 0;
  // The fields of placement().
  int num_replicas_in_sync() const { return placement().num_replicas_in_sync; }
  InputShard input_shard() const { return placement().input; }            // what this process reads
  InputShard evaluation_shard() const { return placement().evaluation; }  // the same of validation data
  Group replicas() const { return placement().replicas; }  // ranks among which they are counted

  // Takes charge of the model that `recipe` makes: afterwards all replicas hold the same parameters and
  // buffers (those of rank 0's first), and steps are taken as Training says. Throws MismatchError naming the
  // first parameter whose shape or dtype differs between ranks.
  virtual std::unique_ptr<Training> prepare(const Recipe& recipe) = 0;

  // For a loop of one's own around one replica: takes charge of `module`, and gradients are combined as
  // PreparedModel says. Call before the optimizer is made. Throws UsageError for a strategy that has not one
  // whole loop a process, MismatchError as above.
  virtual std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module);

  // The strategy goes on in another world: other ranks, another number of them. What it prepared before is
  // not changed: see Training::rebuild(), which calls this. Throws UsageError, and stays as it was, for a
  // world that its options do not fit, and for a strategy that cannot.
  virtual void rebuild(const Context& context);

  // Returns this process's work for parameter servers that hold the weights; null for other strategies.
  virtual const ServerWork* server_work() const { return nullptr; }
  bool is_served() const { return server_work() != nullptr; }  // whether servers hold the weights
  // Returns ServerWork::steps_before, after prepare(); 0 for other strategies.
  std::uint64_t steps_before() const { return is_served() ? server_work()->steps_before : 0; }
  // Waits until all other workers of servers have done their last step; returns at once for other strategies.
  // Not collective: for the worker that has something to do then, as the last validation.
  void wait_for_others() const {
    if (is_served() && server_work()->wait_for_others) server_work()->wait_for_others();
  }

  // For prepare() from now on: the strategy itself casts by this policy, and keeps the weights that the
  // optimizer changes in the dtype of the model that it is given. False, and nothing happens, for a strategy
  // that cannot. Throws UsageError when it has another policy already.
  virtual bool set_mixed_precision(const MixedPrecisionPolicy& /*policy*/) { return false; }

  // Calls `step` once for each replica of this process with the replica's number among
  // num_replicas_in_sync(), in a ReplicaContext. Replicas of one process run at the same time, and whatever a
  // Training of this strategy gives inside is that of the calling replica. An exception is thrown on with the
  // replica's number.
  virtual ReplicaValue run(const std::function<at::Tensor(int replica)>& step) = 0;
  // The same with inputs[i] for the i-th replica of this process, as DistributedDataset gives them.
  ReplicaValue run(const std::function<at::Tensor(const Batch&)>& step, std::span<const Batch> inputs);

  // Combines `value` over all replicas; every rank gets the result. Without `axis` tensors of one shape are
  // combined element by element. With `axis` that dimension is reduced as well, its length may differ between
  // replicas (a last, smaller batch), and AVG divides by the true number of elements. Operations with axis:
  // SUM, AVG, MIN, MAX.
  at::Tensor reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis = {});

  // Concatenates `value` over all replicas in replica order along `axis`, whose length may differ between
  // them.
  at::Tensor gather(const ReplicaValue& value, std::int64_t axis);

  // The tensors of `value` that are on this process, in replica order.
  std::vector<at::Tensor> local_results(const ReplicaValue& value) const { return value.tensors(); }

  // Batches for the replicas: of a data set in memory, of files, or of what a function makes for each input
  // pipeline. Samples are divided among processes as options.shard says. Collective. Throw UsageError for a
  // global batch that replicas do not divide, and for sharding by file with fewer files than processes.
  std::unique_ptr<DistributedDataset> distribute(std::shared_ptr<const Dataset> data,
                                                 const DistributeOptions& options);
  // Likewise.
  std::unique_ptr<DistributedDataset> distribute(const DatasetFiles& files, const DistributeOptions& options);
  // Likewise.
  std::unique_ptr<DistributedDataset> distribute(
      const std::function<PipelineInput(const InputContext&)>& input);

  // Makes this the strategy that Strategy::current() returns on this thread, for as long as the result lives.
  [[nodiscard]] Scope scope();
  // The innermost scope's strategy on this thread, or null.
  static Strategy* current();
  // The same, or the default strategy outside of every scope.
  static Strategy& current_or_default();

 protected:
  // For rebuild() of strategies that can go on in another world.
  void set_context(const Context& context) { context_ = context; }

 private:
  friend class StrategyReference;

  // Throws UsageError for a value that has not a tensor for each call that run() makes in this process.
  static const std::vector<at::Tensor>& checked(const ReplicaValue& value, const ReplicaPlacement& placement,
                                                const std::string& name);

  std::string name_;
  std::optional<Context> context_;
  std::shared_ptr<const void> lifetime_ = std::make_shared<const char>();  // expires with the strategy
};

// What Strategy::scope() gives: ends it when it ends. Not to be moved to another thread.
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
