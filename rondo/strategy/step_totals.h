#pragma once

#include <cstdint>

namespace rondo {

// What replicas tell each other about a step, besides its gradients; added up over them.
struct StepTotals {
  double loss = 0;               // summed over the predictions
  std::int64_t predictions = 0;  // that the loss counts
  std::int64_t samples = 0;      // of all batches of the window
  bool stop = false;             // a replica was asked to stop after this step; of the sum: any of them was
};

}  // namespace rondo
