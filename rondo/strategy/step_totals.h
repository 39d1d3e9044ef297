#pragma once

#include <cstdint>

namespace rondo {

// Sums over replicas about a step, besides gradients.
struct StepTotals {
  double loss = 0;               // summed over the predictions
  std::int64_t predictions = 0;  // number of predictions in the loss
  std::int64_t samples = 0;      // samples of all batches of the window
  bool stop = false;             // whether a replica was asked to stop after this step; in the sum: any
                                 // replica
};

}  // namespace rondo
