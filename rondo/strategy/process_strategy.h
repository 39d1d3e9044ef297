#pragma once

#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of the strategies with one replica per process: everything but prepare(module) follows from the
// group of ranks.
class ProcessStrategy : public Strategy {
 public:
  // `name` as in the registry.
  ProcessStrategy(std::string name, Context context) : name_(std::move(name)), context_(std::move(context)) {}

  using Strategy::prepare;
  // A SynchronousTraining of what prepare(module) gives.
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  std::string name() const override { return name_; }
  const Context& context() const override { return context_; }
  int num_replicas_in_sync() const override { return context_.world_size(); }
  InputShard input_shard() const override { return {context_.rank(), context_.world_size()}; }
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;
  at::Tensor reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis = {}) override;
  at::Tensor gather(const ReplicaValue& value, std::int64_t axis) override;

 protected:
  // For rebuild() of strategies that can go on in another world.
  void set_context(const Context& context) { context_ = context; }

 private:
  std::string name_;
  Context context_;
};

}  // namespace rondo
