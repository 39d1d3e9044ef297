#pragma once

#include "rondo/data/dataset.h"

namespace rondo::testing {

// Samples of one input and one target each.
class Rows : public TensorDataset {
 public:
  Rows(at::Tensor inputs, at::Tensor targets, std::int64_t classes = 0)
      : TensorDataset({std::move(inputs)}, {std::move(targets)}, classes) {}
};

}  // namespace rondo::testing
