#pragma once

#include <functional>
#include <vector>

#include "rondo/nn/optimizers/rule_optimizer.h"

namespace rondo {

// Where a rank has only parts of parameters: makes of the squares of its parts' norms those of the whole
// parameters. Row i of `squares`, float64 [parameters, 2] on the CPU, belongs to parameter i. Collective.
using NormSum = std::function<void(const std::vector<at::Tensor>& parameters, at::Tensor& squares)>;

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
