#pragma once

#include <torch/types.h>

#include <functional>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/base/bytes.h"
#include "rondo/cost/profile.h"

namespace rondo {

// Reduces one number over all ranks. Collective.
inline double over_ranks(double value, const Group& group, ReduceOp how) {
  at::Tensor message = at::full({1}, value, at::kDouble);
  all_reduce(message, group, how);
  return message.item<double>();
}

struct LinkProfileOptions {
  Bytes largest = MiB(64);   // largest whole buffer of collectives; sizes grow from 4 KiB by factors of four
  int runs = 9;              // number of runs per size; the median is used
  int contention_runs = 15;  // runs of a training pass alone, of communication alone, and of both together
  Bytes in_flight_limit = MiB(16);  // limit of sharded training's bytes in flight
  Duration patience =
      std::chrono::seconds(20);    // for each collective; sizes that would take longer are skipped
  bool messages = false;           // also measure cost::Link::send_recv and all_to_all
  c10::Device device = c10::kCPU;  // device of the tensors, which decides the engine that carries them
};

// Returns true if communication progresses while a rank computes, as between hosts.
bool travels_in_background(const Context& context);

// Measures the cost of sharded training's collectives among the ranks of `context`. Collective; returns the
// same result on all ranks. Throws UsageError for a world of one rank.
//
// On an engine that progresses in the background, a size's time is that of one segment among several
// consecutive segments of a CommunicationQueue, as in training. If the ranks of one host work in each other's
// memory, it is the time of a single collective in registered memory, and the link has parameters_in_place
// set. On an accelerator, times include the device's work. Curves are made monotone; sizes are those of whole
// buffers. `pass` is a training pass without communication; its slowdown by concurrent communication is the
// contention.
cost::Link profile_link(const Context& context, const LinkProfileOptions& options,
                        const std::function<void()>& pass);

}  // namespace rondo
