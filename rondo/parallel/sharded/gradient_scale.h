#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "rondo/parallel/sharded/sharded_unit.h"

namespace rondo {

// A sample of the gradients that this rank's optimizer has, which tells by which factor a program scales them
// before the step. All ranks are to scale alike: torch's clip_grad_norm_, given shards, scales by the norm of
// this rank's alone. One thread.
class GradientScale {
 public:
  // The gradients of all units were combined and are where the optimizer looks.
  void take(const ShardedUnits& units);
  // The factor since then; empty where elements changed by different ones, and where too few are not zero.
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
