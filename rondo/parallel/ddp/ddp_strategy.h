#pragma once

#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// Strategy "ddp": DistributedDataParallel behind the Strategy interface. Each rank is one replica.
class DdpStrategy final : public ProcessStrategy {
 public:
  DdpStrategy(Context context, const StrategyOptions& options);
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;

 private:
  StrategyOptions options_;
};

}  // namespace rondo
