#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// A few elements of a rank's parameters, the same ones on all ranks, as two numbers.
struct ParameterSample {
  double sum = 0;
  double size = 0;  // the sum of the absolute values
};

// A check that ranks which are to have the same parameters still do. Compares a few elements in some passes
// only, so that a training does not feel it, and up to rounding, since processors of different kinds round
// differently. The samples travel with the announcement of a step where there is one
// (StepAnnouncement::carry), else in an all-reduce of their own. DdpOptions::check_parameters_every is the
// thorough check. One thread at a time.
class DriftCheck {
 public:
  // `parameters` are those that ranks train together, in the same order on all ranks of `group`.
  DriftCheck(std::vector<ModelTensor> parameters, Group group);

  // Whether the pass under way, in which gradients are combined, is one that is checked. The same on all
  // ranks.
  bool is_due() const;
  // This rank's sample for the pass under way; needs no other rank.
  ParameterSample sample() const;
  // Throws MismatchError when the samples of one pass, by rank, differ by more than rounding.
  void compare(std::span<const ParameterSample> by_rank) const;

  // After a pass in which gradients were combined, on all ranks. Where the pass was due and its samples were
  // not compared, exchanges and compares them: collective, throws MismatchError on every rank.
  void after_pass(bool is_compared);

 private:
  std::vector<ModelTensor> parameters_;  // of float32 and float64, in one piece of memory
  Group group_;
  std::uint64_t passes_ = 0;
};

}  // namespace rondo
