#pragma once

#include "rondo/strategy/strategy.h"

namespace rondo {

// A base class of strategies with one replica per process: all but prepare(module) follows from the group of
// ranks.
class ProcessStrategy : public Strategy {
 public:
  // `name` is the name in the registry.
  ProcessStrategy(std::string name, Context context) : Strategy(std::move(name), std::move(context)) {}

  using Strategy::prepare;
  // Returns a SynchronousTraining of the result of prepare(module).
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  ReplicaPlacement placement() const override;
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;
};

}  // namespace rondo
