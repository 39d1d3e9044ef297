#pragma once

#include <optional>

#include "rondo/strategy/strategy.h"

namespace rondo {

// What is current outside of every scope: nothing is spread, every operation is the plain one of this
// process.
class DefaultStrategy final : public Strategy {
 public:
  // Without a context nothing that needs one can be asked: context(), and a Training, which has precision and
  // state of a job. Throws UsageError for a job of several processes, which would train separate models.
  explicit DefaultStrategy(std::optional<Context> context = {});

  std::string name() const override { return "default"; }
  const Context& context() const override;
  int num_replicas_in_sync() const override { return 1; }
  InputShard input_shard() const override { return {}; }
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;
  at::Tensor reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis = {}) override;
  at::Tensor gather(const ReplicaValue& value, std::int64_t axis) override;

 private:
  std::optional<Context> context_;
};

}  // namespace rondo
