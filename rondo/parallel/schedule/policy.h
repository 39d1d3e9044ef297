#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/parallel/schedule/bucket_future.h"

namespace rondo {

// A piece of communication that is started and waited for as a whole: a collective on a part of a unit's flat
// buffer.
struct CommunicationBlock {
  std::string collective = {};  // "all_gather", "reduce_scatter", "all_reduce"
  std::string unit = {};
  std::size_t index = 0;  // among the unit's blocks
  Bytes bytes = {};       // that this rank's part of the model moves
  // What is needed first has the least.
  std::int64_t priority = 0;
  // A block submitted before that must be finished before this one may start.
  std::optional<std::uint64_t> after = {};
  // Begins it, without waiting. On all ranks in one order, which is the queue's care.
  std::function<BucketFuture()> start = {};
  // Of a plan: not begun before CommunicationQueue::reach() has come to this slot, unless somebody waits for
  // it.
  std::int64_t slot = 0;
  // What messages about it call it; null: the collective and the unit.
  std::function<std::string()> describe = {};
  // When its data was there, as monotonic_ns(), where that was before it was queued.
  std::int64_t ready_ns = 0;
};

// When the blocks of one collective go out.
struct BlockOrder {
  // A block's place in a plan.
  struct Place {
    std::int64_t slot = 0;
    std::int64_t priority = 0;
  };

  // Without a plan: all at once, with one priority.
  BlockOrder(std::int64_t priority) : everywhere{0, priority} {}  // NOLINT(google-explicit-constructor)
  // By a plan that cuts the collective into as many blocks as there are `places`.
  BlockOrder(std::vector<Place> places, std::int64_t priority)
      : everywhere{0, priority}, planned(std::move(places)) {}

  // Of block `index` of `count`, which may be another number than the plan has.
  Place of(std::size_t index, std::size_t count) const {
    return planned.empty() ? everywhere : planned[index * planned.size() / count];
  }

  // The same in a later step of the plan: everything in it comes after what earlier steps have in the queue.
  BlockOrder later_by(std::int64_t slots) const {
    BlockOrder later = *this;
    const auto move = [&](Place& place) {
      place.slot += slots;
      place.priority += slots * kPrioritiesOfASlot;
    };
    move(later.everywhere);
    for (Place& place : later.planned) move(place);
    return later;
  }

  // More than the blocks of a step, so that no priority of one step is that of another.
  static constexpr std::int64_t kPrioritiesOfASlot = std::int64_t{1} << 24;

  Place everywhere;
  std::vector<Place> planned = {};
};

// Decides which of the blocks that wait goes next. A value is used by one thread at a time.
class SchedulePolicy {
 public:
  virtual ~SchedulePolicy() = default;
  virtual std::string name() const = 0;
  // Position in `waiting` (in the order in which they were queued, never empty) of the block to start.
  // Follows from the calls made so far alone.
  virtual std::size_t next(std::span<const CommunicationBlock* const> waiting) = 0;
  // How many of `waiting` blocks may be started now that one was queued; the others stay until one of them is
  // waited for or another is queued.
  virtual std::size_t release(std::size_t waiting) { return waiting; }
  // The computation has come to a slot of the plan.
  virtual void reach(std::int64_t /*slot*/) {}
  // Whether a block may go now, though nobody waits for it yet.
  virtual bool allows(const CommunicationBlock&) const { return true; }
};

struct PolicyOptions {
  // fifo: in the order of queueing. priority: what is needed first. random: any legal order, drawn anew from
  // `seed` for each block. plan: in the order of a plan, each not before its slot.
  std::string name = "priority";
  std::uint64_t seed = 0;
};

// Throws UsageError for an unknown name.
std::unique_ptr<SchedulePolicy> make_policy(const PolicyOptions& options);

}  // namespace rondo
