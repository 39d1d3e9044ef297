#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

// Summary of a few parameter elements of one rank; all ranks sample the same elements.
struct ParameterSample {
  double sum = 0;
  double size = 0;  // sum of the absolute values
};

// A check that parameters which should be equal on all ranks still are. To cost little, the check compares a
// few elements in some passes only. Differences within rounding are accepted, because processors of different
// kinds round differently. Samples are sent with the announcement of a step if there is one
// (StepAnnouncement::carry), else in a separate all-reduce. DdpOptions::check_parameters_every is the
// thorough check. Not thread-safe.
class DriftCheck {
 public:
  // `parameters`: the parameters trained together, in the same order on all ranks of `group`.
  DriftCheck(std::vector<ModelTensor> parameters, Group group);

  // Returns true if the current pass, in which gradients are reduced, is to be checked. The result is the
  // same on all ranks.
  bool is_due() const;
  // Returns this rank's sample for the current pass. Does not communicate.
  ParameterSample sample() const;
  // Throws MismatchError if the samples of one pass, given by rank, differ by more than rounding.
  void compare(std::span<const ParameterSample> by_rank) const;

  // Counts a pass in which gradients were reduced; call it on all ranks after each. If the pass was due and
  // `is_compared` is false, the call is collective: it exchanges and compares the samples, and throws
  // MismatchError on every rank if they differ.
  void after_pass(bool is_compared);

 private:
  std::vector<ModelTensor> parameters_;  // contiguous, non-empty ones of float32 and float64
  Group group_;
  std::uint64_t passes_ = 0;
};

}  // namespace rondo
