#pragma once

#include <functional>
#include <vector>

#include "rondo/parallel/ddp/ddp.h"

namespace rondo {

// Options of with_join().
struct JoinOptions {
  // Without set_local_samples(): true divides by all ranks, so gradients shrink as ranks run out of data;
  // false divides by the ranks that still have data. With set_local_samples() gradients are divided by the
  // total number of samples, and this option has no effect.
  bool divide_by_initial_world_size = true;
  // As soon as a rank has run out of data, all ranks throw MismatchError with the ranks that have.
  bool throw_on_early_termination = false;
};

// Runs `training_loop` on ranks with different numbers of batches (PyTorch's Join). A rank whose loop has
// ended keeps taking part in the others' steps with zeros, which overwrites its gradients. After the last
// rank has ended, all ranks receive its parameters and buffers, or those of the highest rank if several end
// last. Rules inside the loop: each model in `models` runs one forward pass through ddp.forward() or
// before_forward() per backward pass, and models alternate in the order given. set_local_samples() comes
// before the forward pass. Collective. Exceptions of the loop pass through.
void with_join(const std::vector<DistributedDataParallel*>& models,
               const std::function<void()>& training_loop, const JoinOptions& options = {});

}  // namespace rondo
