#pragma once

#include "rondo/backend/context.h"
#include "rondo/base/bytes.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/nn/loss.h"
#include "rondo/train/optimizer.h"

namespace rondo {

struct StepOverheadOptions {
  OptimizerOptions optimizer = {};
  LossFunction loss = cross_entropy;  // what is minimised
  Bytes in_flight_limit = MiB(16);    // that sharded training has under way at a time
  bool find_unused_parameters = false;
  int steps = 12;
};

// Trains `model` for some steps as zero2 on all ranks, as a run would, on a batch that repeats itself, and
// gives the seconds of a step in which no unit computes and nobody waits for blocks: what lies outside of all
// units, the update of this rank's part, and what no profile of units has (gradients are copied into the
// buffers that travel, units are prepared and left, the ranks agree on the loss). The median step of the rank
// that waits least for the others. Collective; the same on all ranks. The model's weights change.
double seconds_outside_units(const Context& context, Model model, const Batch& batch,
                             const StepOverheadOptions& options);

}  // namespace rondo
