#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "rondo/backend/group.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/loss.h"

namespace rondo {

// How the ranks that compute a sample together divide it: its sequence under context parallelism, the classes
// of its first output under tensor parallelism. An empty group divides nothing, and the functions give back
// what they are given.
struct SampleDivision {
  Group sequence = {};  // ranks that have pieces of the sequence
  Group classes = {};   // ranks that have parts of the first output's classes

  // Returns this rank's pieces of the batch's sequences. Throws UsageError for a tensor without a sequence,
  // and for a length that the ranks do not divide.
  Batch own_part(const Batch& batch) const;
  // Returns the number of ranks that divide a sequence. Each counts by the predictions of the whole batch,
  // and minimises the mean over its own predictions times their share of them times this number, since
  // gradients of one rank's loss pass through the others.
  int ranks_of_sequence() const;
  // Returns the loss of this rank's outputs that equals `loss` of the whole ones.
  LossFunction loss_of_parts(LossFunction loss) const;
  // Returns the whole of this rank's outputs, for evaluation and prediction. Collective among the ranks.
  std::vector<at::Tensor> whole_outputs(std::vector<at::Tensor> outputs) const;
};

}  // namespace rondo
