#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

class Context;
class Strategy;

// Of strategy "local_sgd". Every rank must give the same options.
struct LocalSgdOptions {
  // Steps that ranks take alone before their parameters are averaged (Stich, Local SGD, 1805.09767).
  std::int64_t sync_period = 8;
  // The first steps average gradients, as ddp does: post-local SGD (Lin et al., 1808.07217).
  std::int64_t synchronous_steps = 0;
  // What is made of the average: it is taken over (average), or an outer optimizer, SGD with Nesterov's
  // momentum, goes from the parameters of the last average towards it (diloco; Douillard et al., 2311.08105).
  std::string outer = "average";
  double outer_learning_rate = 0.7;  // of diloco
  double outer_momentum = 0.9;       // of diloco
  // The parameters are averaged in so many parts of about equal size, at times evenly spread over the period
  // (Streaming DiLoCo, 2501.18512, as sync_delay).
  std::int64_t fragments = 1;
  // Steps that go on while an average travels; it counts from the last of them on.
  std::int64_t sync_delay = 0;
};

// This folder's strategy: what it is called and can be told (without libtorch), and how it is made.
struct LocalSgdFolder {
  using Options = LocalSgdOptions;                 // of strategy local_sgd
  static std::vector<Declaration> declarations();  // of strategy local_sgd
  // Makes it. Throws UsageError for options that do not fit each other.
  static std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                        const Options& options);
};

}  // namespace rondo
