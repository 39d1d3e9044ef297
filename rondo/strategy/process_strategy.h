#pragma once

#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of the strategies with one replica per process: everything but prepare() follows from the group of
// ranks.
class ProcessStrategy : public Strategy {
 public:
  ProcessStrategy(std::string name, Context context) : name_(std::move(name)), context_(std::move(context)) {}

  std::string name() const override { return name_; }
  const Context& context() const override { return context_; }
  int num_replicas_in_sync() const override { return context_.world_size(); }
  InputShard input_shard() const override { return {context_.rank(), context_.world_size()}; }
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;
  at::Tensor reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis = {}) override;
  at::Tensor gather(const ReplicaValue& value, std::int64_t axis) override;

 private:
  std::string name_;
  Context context_;
};

}  // namespace rondo
