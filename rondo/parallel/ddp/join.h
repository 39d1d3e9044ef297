#pragma once

#include <functional>
#include <vector>

#include "rondo/parallel/ddp/ddp.h"

namespace rondo {

// What with_join() is told.
struct JoinOptions {
  // Without set_local_samples: true divides by all ranks, so gradients shrink as ranks run out of data; false
  // by those that still have data. With set_local_samples the sum of samples divides, and this has no
  // influence.
  bool divide_by_initial_world_size = true;
  // All ranks throw MismatchError naming the ranks that have run out, as soon as one has.
  bool throw_on_early_termination = false;
};

// Runs `training_loop` on ranks that have different numbers of batches (PyTorch's Join). A rank whose loop
// has ended goes on taking part in the others' steps with zeros, which overwrites its gradients; when the
// last rank has ended, parameters and buffers of (the highest of) the last are given to all. Rules inside the
// loop: each model in `models` makes one forward pass through ddp.forward or before_forward per backward
// pass, and models take turns in the order given; set_local_samples comes before the forward pass.
// Collective. An exception from the loop passes through.
void with_join(const std::vector<DistributedDataParallel*>& models,
               const std::function<void()>& training_loop, const JoinOptions& options = {});

}  // namespace rondo
