#pragma once

#include <cstdint>

#include "rondo/collective/request.h"
#include "rondo/collective/shared_memory/peers.h"

namespace rondo::shared_memory {

// Number of spins without a pause instruction. Pauses would make an operation whose peers have arrived a
// tenth slower.
inline constexpr int kImmediateSpins = 32;

// Returns whether the request is an all_reduce whose data fits a slot, without weights.
bool is_slot_all_reduce(const CollectiveRequest& request);

// A blocking all_reduce whose data fits a slot (is_slot_all_reduce), without the state of an Operation, which
// takes as long to make and to advance as a cache line takes from one core to another. Requires that the slot
// of `sequence` is free and that no operation is in flight. Never throws.
class SlotAllReduce {
 public:
  // Publishes the request in this rank's slot.
  SlotAllReduce(const CollectiveRequest& request, std::uint64_t sequence, const Peers& peers);

  // Waits for at most `spins` looks at the peers' slots, the first ones without a pause. If all peers have
  // published the same request, writes the sums and returns true. Otherwise returns false, and peers have
  // been notified: an Operation continues (Operation::continue_published).
  bool finish(std::uint64_t ticket, int spins) const;

 private:
  const Slot& slot_of(int rank) const;
  // Returns the first rank from `rank` on that has not published; size() if there is none.
  int next_missing(int rank) const;
  bool all_agree() const;

  const CollectiveRequest& request_;
  std::uint64_t sequence_;
  const Peers& peers_;
};

}  // namespace rondo::shared_memory
