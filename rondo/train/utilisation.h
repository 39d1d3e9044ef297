#pragma once

#include <optional>

#include "rondo/observe/product_flops.h"
#include "rondo/train/callback.h"

namespace rondo {

// Model FLOPs utilisation (MFU) of steps: the ratio of the operations that a step's samples need to the
// ranks' peak in the step's time,
//
//   3 x forward FLOPs of a sample x samples of the step / (seconds of the step x sum of the ranks' peaks).
//
// Forward FLOPs are those of the products in one step's forward passes, counted on all ranks (ProductFlops);
// a backward pass costs twice as much. Other computation and recomputation do not count as useful.
class Utilisation {
 public:
  // Construct it before the first step. `peak_flops` is a rank's peak in operations per second. If empty it
  // is measured on all ranks at once, by products of square matrices in the dtype of training. Collective.
  Utilisation(Trainer& trainer, std::optional<double> peak_flops);

  // Call these in on_step_begin and on_step_end of every step. Collective in the first one.
  void begin_step();
  std::optional<double> end_step(Trainer& trainer, const StepRecord& record);

 private:
  double joint_peak_ = 0;                        // sum over all ranks
  std::optional<double> flops_per_sample_ = {};  // forward and backward; empty before the first step
  std::optional<ProductFlops> counter_;          // set during the first step
};

}  // namespace rondo
