#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/sharded/sharded_unit.h"

namespace rondo {

// Notices that somebody has scaled all gradients of this rank's shards by one factor, as torch's
// clip_grad_norm_ does by the norm of these shards alone. Looks at one element of a few of them; CPU, float32
// and float64. One thread.
class GradientProbe {
 public:
  // Remembers what the installed gradients are, until forget().
  void look(const ShardedUnits& units);
  void forget() { elements_.clear(); }  // the gradients may be freed
  // What the gradients have been scaled by since, and their norm now. Empty where there is no such factor
  // below 1, and for a power of two, which is a gradient scaler's.
  std::optional<GradientScaling> scaling(const ShardedUnits& units) const;

 private:
  struct Element {
    at::Tensor gradient;
    double value;
  };
  std::vector<Element> elements_;
};

}  // namespace rondo
