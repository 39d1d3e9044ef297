#pragma once

#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of the strategies with one replica per process: everything but prepare(module) follows from the
// group of ranks.
class ProcessStrategy : public Strategy {
 public:
  // `name` as in the registry.
  ProcessStrategy(std::string name, Context context) : Strategy(std::move(name), std::move(context)) {}

  using Strategy::prepare;
  // A SynchronousTraining of what prepare(module) gives.
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  ReplicaPlacement placement() const override;
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;
};

}  // namespace rondo
