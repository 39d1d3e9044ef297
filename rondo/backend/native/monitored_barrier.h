#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rondo/base/time.h"
#include "rondo/collective/shared_memory/peers.h"

namespace rondo {

// A barrier over the group's store, apart from the engine: rank 0 waits for every other rank, and those for
// rank 0's word. A rank that does not come leaves the group usable. `call` counts the calls of the group
// from 1, equal on all ranks; a rank makes one at a time.
//
// Throws TimeoutError after `timeout`: on rank 0 it names the first rank that is missing, or with
// `name_all_missing` all of them; on the others that rank 0 did not let them pass.
void monitored_barrier(c10d::Store& store, const shared_memory::GroupOptions& group, std::uint64_t call,
                       Duration timeout, bool name_all_missing);

}  // namespace rondo
