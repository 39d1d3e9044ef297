#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/backend/group.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/loss.h"

namespace rondo {

// Division of a sample among the ranks that compute it together: its sequence under context parallelism, the
// classes of its first output under tensor parallelism. An empty group divides nothing, and the functions
// return their arguments.
struct SampleDivision {
  Group sequence = {};  // ranks that have pieces of the sequence
  Group classes = {};   // ranks that have parts of the first output's classes

  // Returns this rank's pieces of the batch's sequences. Throws UsageError for a tensor without a sequence
  // dimension, and for a length that the ranks cannot divide.
  Batch own_part(const Batch& batch) const;
  // Returns the number of ranks that divide a sequence. Each rank reports the number of predictions of the
  // whole batch as its weight. A rank's loss is the mean over its own predictions, multiplied by their share
  // of the batch and by this number, because gradients of one rank's loss also pass through the others.
  int ranks_of_sequence() const;
  // Returns a loss function of this rank's outputs whose value equals `loss` of the whole outputs.
  LossFunction loss_of_parts(LossFunction loss) const;
  // Returns the whole outputs from this rank's, for evaluation and prediction. Collective among these ranks.
  std::vector<at::Tensor> whole_outputs(std::vector<at::Tensor> outputs) const;
};

}  // namespace rondo
