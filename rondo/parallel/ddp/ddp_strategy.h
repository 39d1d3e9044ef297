#pragma once

#include <functional>

#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/hooks/comm_hook.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// Strategy "ddp": DistributedDataParallel behind the Strategy interface. Each rank is one replica.
class DdpStrategy : public ProcessStrategy {
 public:
  using MakeHook = std::function<CommHook(const Context&)>;

  // Throws UsageError for a codec that is not known, also where nothing has to travel.
  DdpStrategy(Context context, const DdpStrategyOptions& options);
  // A strategy of another name whose gradients travel as `hook` says, which is made for each prepared model.
  DdpStrategy(std::string name, Context context, const DdpStrategyOptions& options, MakeHook hook);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  void rebuild(const Context& context) override { set_context(context); }

 private:
  DdpStrategyOptions options_;
  MakeHook make_hook_;  // null: by options_
};

}  // namespace rondo
