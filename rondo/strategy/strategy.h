#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/precision/mixed_precision_policy.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/replica_value.h"

namespace rondo {

// Which part of every global batch a process reads: rank `index` of `count` readers.
struct InputShard {
  int index = 0;
  int count = 1;
};

// How training is spread over processes and devices. Everything that differs between one process,
// replication, sharding or parameter servers is behind this interface; the trainer knows nothing else.
// Methods are collective (every rank calls them in the same order) unless they are const. One thread uses an
// object.
class Strategy {
 public:
  class Scope;

  virtual ~Strategy() = default;

  // The name under which the registry knows it.
  virtual std::string name() const = 0;
  virtual const Context& context() const = 0;
  // Replicas of the model whose gradients are combined in one step; the global batch is this many local
  // batches.
  virtual int num_replicas_in_sync() const = 0;
  virtual InputShard input_shard() const = 0;

  // Takes charge of `module`: afterwards all replicas hold the same parameters and buffers (rank 0's), and
  // gradients are combined as PreparedModel says. Call before the optimizer is made. Throws MismatchError
  // naming the first parameter whose shape or dtype differs between ranks.
  virtual std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) = 0;

  // For prepare() from now on: the strategy itself casts by this policy, and keeps the weights that the
  // optimizer changes in the dtype of the model that it is given. False, and nothing happens, for a strategy
  // that cannot. Throws UsageError when it has another policy already.
  virtual bool set_mixed_precision(const MixedPrecisionPolicy& /*policy*/) { return false; }

  // Calls `step` once for each replica of this process with the replica's number among
  // num_replicas_in_sync().
  virtual ReplicaValue run(const std::function<at::Tensor(int replica)>& step) = 0;

  // Combines `value` over all replicas; every rank gets the result. Without `axis` tensors of one shape are
  // combined element by element. With `axis` that dimension is reduced as well, its length may differ between
  // replicas (a last, smaller batch), and AVG divides by the true number of elements. Operations with axis:
  // SUM, AVG, MIN, MAX.
  virtual at::Tensor reduce(ReduceOp op, const ReplicaValue& value,
                            std::optional<std::int64_t> axis = {}) = 0;

  // Concatenates `value` over all replicas in replica order along `axis`, whose length may differ between
  // them.
  virtual at::Tensor gather(const ReplicaValue& value, std::int64_t axis) = 0;

  // The tensors of `value` that are on this process, in replica order.
  std::vector<at::Tensor> local_results(const ReplicaValue& value) const { return value.tensors(); }

  // Makes this the strategy that Strategy::current() returns on this thread, for as long as the result lives.
  [[nodiscard]] Scope scope();
  // The innermost scope's strategy on this thread, or null.
  static Strategy* current();
};

class Strategy::Scope {
 public:
  explicit Scope(Strategy* strategy);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Strategy* outer_;
};

}  // namespace rondo
