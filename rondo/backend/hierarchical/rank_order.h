#pragma once

#include <memory>

#include "rondo/backend/hierarchical/transports.h"
#include "rondo/collective/request.h"

namespace rondo::hierarchical {

// Sums that depend on the ranks' numbers alone, not on which ranks share a host, how many there are, or where
// a chunk ends: every element is added by one rank in the order of ranks 0, 1, 2, ... and rounded once, as in
// the shared-memory engine, and so has that engine's bits. `request` is an all_reduce in place or a
// reduce_scatter.
//
// Each rank gets its piece of a chunk from all others, within the host through shared memory. Numbers of one
// host cannot be added before they leave it, so with H hosts of L ranks a host sends (H-1)/H L S in
// reduce_scatter and (H-1)/H (L+1) S in all_reduce.
std::unique_ptr<Operation> rank_order_sum(const CollectiveRequest& request, const HostMap& map);

}  // namespace rondo::hierarchical
