#pragma once

#include "rondo/nn/optimizers/whole_norms.h"

namespace rondo {

// LAMB (You et al., "Large Batch Optimization for Deep Learning", 2020): Adam's direction plus the decayed
// weights, with the length of the parameter's own norm. A parameter or direction of norm 0 counts as 1 to 1.
class Lamb final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

}  // namespace rondo
