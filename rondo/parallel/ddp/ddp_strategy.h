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

  // Throws UsageError for an unknown codec, even if no gradients are exchanged.
  DdpStrategy(Context context, const DdpStrategyOptions& options);
  // A strategy of another name that reduces gradients with the result of `hook`, called for each prepared
  // model.
  DdpStrategy(std::string name, Context context, const DdpStrategyOptions& options, MakeHook hook);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  void rebuild(const Context& context) override { set_context(context); }

 private:
  DdpStrategyOptions options_;
  MakeHook make_hook_;  // null if options_.codec is "none"
};

}  // namespace rondo
