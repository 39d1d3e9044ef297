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
  // Returns true if the ranks are on several hosts, and nothing needs all gradients at the end of backward or
  // all parameters after the optimizer's step. Then the all-gather half of each all-reduce may end in the
  // next forward pass, before the optimizer's step of the unit. That takes a ShardedModel of replicated
  // units: DistributedDataParallel leaves the whole gradient in `.grad` at the end of backward.
  bool defers_all_gathers(const torch::nn::Module& module) const;
  bool spans_hosts() const { return context().local_world_size() < context().world_size(); }

  DdpStrategyOptions options_;
  MakeHook make_hook_;  // null if options_.codec is "none"
};

}  // namespace rondo
