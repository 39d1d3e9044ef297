#pragma once

#include <torch/types.h>

#include <functional>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/base/bytes.h"
#include "rondo/cost/profile.h"

namespace rondo {

// One number of every rank, reduced over them. Collective.
inline double over_ranks(double value, const Group& group, ReduceOp how) {
  at::Tensor message = at::full({1}, value, at::kDouble);
  all_reduce(message, group, how);
  return message.item<double>();
}

struct LinkProfileOptions {
  Bytes largest = MiB(64);          // whole buffers of collectives, from 4 KiB in steps of four
  int runs = 9;                     // of each size; the median counts
  int contention_runs = 15;         // of a training pass alone, of communication alone, and of both together
  Bytes in_flight_limit = MiB(16);  // that sharded training has under way at a time
  Duration patience =
      std::chrono::seconds(20);  // for each collective; sizes that would take longer are left out
  bool messages = false;         // cost::Link::send_recv and all_to_all, too
};

// Whether blocks travel while a rank computes, as between hosts.
bool travels_in_background(const Context& context);

// Measures what sharded training's collectives among the ranks of `context` cost. Collective; the same result
// on all ranks. Throws UsageError for a world of one.
//
// Where blocks travel while the training computes (an engine that works in the background), a size's time is
// that of one block among several that follow one another through a CommunicationQueue, as in training. Where
// ranks of one host work in each other's memory, it is that of a collective alone, in registered memory, and
// the link says that parameters are in place. Curves are made monotone; sizes are those of whole buffers.
// `pass` is a training pass without communication: how much slower it gets beside communication is the
// contention.
cost::Link profile_link(const Context& context, const LinkProfileOptions& options,
                        const std::function<void()>& pass);

}  // namespace rondo
