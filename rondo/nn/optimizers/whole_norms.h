#pragma once

#include <vector>

#include "rondo/nn/optimizers/norm_sum.h"
#include "rondo/nn/optimizers/rule_optimizer.h"

namespace rondo {

// An optimizer whose rule compares the norm of a whole parameter with that of its update.
class WholeNormOptimizer : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;
  // Before the first step; without it every parameter is here as a whole.
  void set_norm_sum(NormSum sum) { sum_ = std::move(sum); }

 protected:
  // For each part the norms of its parameter and of `directions[i]`; 0 where that is undefined. Collective
  // where set_norm_sum() was called.
  struct Norms {
    double parameter = 0, direction = 0;
  };
  std::vector<Norms> norms(const std::vector<Part>& parts, const std::vector<at::Tensor>& directions) const;

 private:
  NormSum sum_;
};

}  // namespace rondo
