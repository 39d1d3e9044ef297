#pragma once

#include "rondo/nn/optimizers/whole_norms.h"

namespace rondo {

// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017): gradient and decay
// of a parameter get the rate trust * |w| / (|g| + weight_decay * |w| + eps), then momentum. With a norm of 0
// that rate is 1.
class Lars final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

}  // namespace rondo
