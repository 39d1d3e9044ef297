#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "rondo/parallel/sharded/sharded_unit.h"

namespace rondo {

// A sample of the gradients that this rank's optimizer sees. It detects the factor by which a program scales
// gradients before the step. All ranks must use the same factor, but torch's clip_grad_norm_ on shards scales
// by the norm of this rank's shards alone. Not thread-safe.
class GradientScale {
 public:
  // Samples the reduced gradients, which must be installed for the optimizer.
  void take(const ShardedUnits& units);
  // Returns the factor since take(). Empty if elements changed by different factors, or if too few samples
  // are not zero.
  std::optional<double> factor() const;
  void drop() { samples_.clear(); }

 private:
  struct Sample {
    at::Tensor gradient;
    std::int64_t element = 0;
    double value = 0;
  };
  std::vector<Sample> samples_;
};

}  // namespace rondo
