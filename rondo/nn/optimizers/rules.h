#pragma once

#include "rondo/nn/optimizers/rule_optimizer.h"

namespace rondo {

// LAMB (You et al., "Large Batch Optimization for Deep Learning", 2020): Adam's direction plus the decayed
// weights, with the length of the parameter's own norm. A parameter or direction of norm 0 counts as 1 to 1.
class Lamb final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017): gradient and decay
// of a parameter get the rate trust * |w| / (|g| + weight_decay * |w| + eps), then momentum. With a norm of 0
// that rate is 1.
class Lars final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): moves every element by the sign
// of a mean of gradients. Weight decay is decoupled.
class Lion final : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

}  // namespace rondo
