#pragma once

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// A check that ranks which are to have the same parameters still do. Compares a few elements in some passes
// only, so that a training does not feel it, and up to rounding, since processors of different kinds round
// differently. DdpOptions::check_parameters_every is the thorough one. One thread.
class DriftCheck {
 public:
  // `parameters` are those that ranks train together, in the same order on all ranks of `group`.
  DriftCheck(std::vector<ModelTensor> parameters, Group group);

  // After a pass in which gradients were combined, on all ranks. Collective in the passes that are checked.
  // Throws MismatchError on every rank when ranks have gone different ways.
  void after_pass();

 private:
  void compare();

  std::vector<ModelTensor> parameters_;  // of float32 and float64, in one piece of memory
  Group group_;
  std::uint64_t passes_ = 0;
};

}  // namespace rondo
