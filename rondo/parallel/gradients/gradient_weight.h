#pragma once

namespace rondo {

// How much the gradients of this rank count in the sum.
struct GradientWeight {
  double scale = 1;    // with 0 the gradients are not even read, so they may hold NaN
  bool equal = false;  // all ranks have this scale, 1 / size: the sum is the mean. The same on all ranks
};

}  // namespace rondo
