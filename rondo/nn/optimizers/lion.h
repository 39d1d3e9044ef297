#pragma once

#include "rondo/nn/optimizers/rule_optimizer.h"

namespace rondo {

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): moves every element by the sign
// of a mean of gradients. Weight decay is decoupled.
class Lion final : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

}  // namespace rondo
