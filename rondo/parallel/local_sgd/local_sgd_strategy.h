#pragma once

#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/strategy/process_strategy.h"

namespace rondo {

// Strategy "local_sgd": every rank trains a replica of its own, and once in a period they are averaged. With
// options also post-local SGD and DiLoCo.
class LocalSgdStrategy final : public ProcessStrategy {
 public:
  // Throws UsageError for a delay that is not shorter than the period, or more fragments than its steps.
  LocalSgdStrategy(Context context, const LocalSgdOptions& options);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  // Throws UsageError: averages of low-precision parameters would not reach their master weights.
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override;

 private:
  LocalSgdOptions options_;
};

}  // namespace rondo
