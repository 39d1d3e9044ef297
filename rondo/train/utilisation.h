#pragma once

#include <optional>

#include "rondo/observe/product_flops.h"
#include "rondo/train/callback.h"

namespace rondo {

// Model FLOPs utilisation (MFU) of steps: the operations that the model needs for a step's samples, divided
// by those that the ranks could have done in its time,
//
//   3 x forward FLOPs of a sample x samples of the step / (seconds of the step x sum of the ranks' peaks).
//
// Forward FLOPs are those of the products of one step's forward passes, counted on all ranks (ProductFlops);
// a backward pass is twice that. What is computed besides or again does not count as useful.
class Utilisation {
 public:
  // Before the first step. A rank's peak in operations a second; empty: measured, on all ranks at once, by
  // products of square matrices in the dtype that training computes in. Collective.
  Utilisation(Trainer& trainer, std::optional<double> peak_flops);

  // Of every step, in on_step_begin and on_step_end. Collective in the first one.
  void begin_step();
  std::optional<double> end_step(Trainer& trainer, const StepRecord& record);

 private:
  double joint_peak_ = 0;                        // of all ranks
  std::optional<double> flops_per_sample_ = {};  // of forward and backward; empty before the first step
  std::optional<ProductFlops> counter_;          // during that
};

}  // namespace rondo
