#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Options of strategy "local_sgd". All ranks must pass the same options.
struct LocalSgdOptions {
  // Number of local steps between averages of the parameters (Stich, Local SGD, 1805.09767).
  std::int64_t sync_period = 8;
  // Number of initial steps that average gradients as ddp does: post-local SGD (Lin et al., 1808.07217).
  std::int64_t synchronous_steps = 0;
  // Use of an average. "average" replaces the parameters with it. "diloco" moves the parameters of the
  // previous average towards it by an outer optimizer, SGD with Nesterov momentum (Douillard et al.,
  // 2311.08105).
  std::string outer = "average";
  double outer_learning_rate = 0.7;  // diloco only
  double outer_momentum = 0.9;       // diloco only
  // Number of parts of about equal size that are averaged separately, at times evenly spread over the period
  // (Streaming DiLoCo, 2501.18512, as sync_delay).
  std::int64_t fragments = 1;
  // Number of steps that continue while an average is in flight; the average is applied after the last of
  // them.
  std::int64_t sync_delay = 0;
};

// Registration of strategy "local_sgd": declarations (without libtorch) and the factory.
struct LocalSgdStrategyFactory {
  using Options = LocalSgdOptions;                 // options of strategy "local_sgd"
  static std::vector<Declaration> declarations();  // declarations of strategy "local_sgd"
  // Returns a new strategy. Throws UsageError for options that contradict each other.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
