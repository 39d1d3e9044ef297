#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/parallel/schedule/bucket_future.h"

namespace rondo {

// A unit of communication that is started and waited for as a whole: a collective on a part of a unit's flat
// buffer.
struct CommunicationSegment {
  std::string collective = {};  // "all_gather", "reduce_scatter", "all_reduce"
  std::string unit = {};
  std::size_t index = 0;  // position among the unit's segments
  Bytes bytes = {};       // bytes that this rank's part of the model sends or receives
  // Priority of the segment; lower values are needed earlier.
  std::int64_t priority = 0;
  // Segment submitted earlier that must be finished before this one may start.
  std::optional<std::uint64_t> after = {};
  // Starts the segment without waiting. The queue calls it in the same order on all ranks.
  std::function<BucketFuture()> start = {};
  // Slot of the plan: the segment does not start before CommunicationQueue::reach() has reported this slot,
  // unless a call waits for the segment.
  std::int64_t slot = 0;
  // Returns the segment's description in messages; if null, the collective and the unit are used.
  std::function<std::string()> describe = {};
  // Time at which the data was ready, as monotonic_ns(), if that was before submit(); otherwise 0.
  std::int64_t ready_ns = 0;
  // Limit of each wait for one of the segment's messages; empty: the engine's timeout.
  std::optional<Duration> timeout = {};
};

// Slots and priorities of the segments of one collective.
struct SegmentOrder {
  // Position of a segment in a plan.
  struct Place {
    std::int64_t slot = 0;
    std::int64_t priority = 0;
  };

  // Order without a plan: all segments in slot 0, with one priority.
  SegmentOrder(std::int64_t priority) : everywhere{0, priority} {}  // NOLINT(google-explicit-constructor)
  // Order of a plan that cuts the collective into `places.size()` segments.
  SegmentOrder(std::vector<Place> places, std::int64_t priority)
      : everywhere{0, priority}, planned(std::move(places)) {}

  // Returns the position of segment `index` of `count`; `count` may differ from the number in the plan.
  Place of(std::size_t index, std::size_t count) const {
    return planned.empty() ? everywhere : planned[index * planned.size() / count];
  }

  // Returns the order for a later step of the plan: all its segments come after those of earlier steps.
  SegmentOrder later_by(std::int64_t slots) const {
    SegmentOrder later = *this;
    const auto move = [&](Place& place) {
      place.slot += slots;
      place.priority += slots * kPrioritiesOfASlot;
    };
    move(later.everywhere);
    for (Place& place : later.planned) move(place);
    return later;
  }

  // Exceeds the number of segments per step, so that priorities of different steps do not overlap.
  static constexpr std::int64_t kPrioritiesOfASlot = std::int64_t{1} << 24;

  Place everywhere;
  std::vector<Place> planned = {};
};

// A policy that picks the next segment among the waiting ones. Not thread-safe.
class SchedulePolicy {
 public:
  virtual ~SchedulePolicy() = default;
  virtual std::string name() const = 0;
  // Returns the position in `waiting` of the segment to start. `waiting` is in order of submission and not
  // empty. The result depends on the calls made so far alone.
  virtual std::size_t next(std::span<const CommunicationSegment* const> waiting) = 0;
  // Returns how many of `waiting` segments may start after a submission. The others stay until one of them is
  // waited for or another segment is submitted.
  virtual std::size_t release(std::size_t waiting) { return waiting; }
  // Reports that the computation has reached a slot of the plan.
  virtual void reach(std::int64_t /*slot*/) {}
  // Returns true if the segment may start although no call waits for it yet.
  virtual bool allows(const CommunicationSegment&) const { return true; }
};

struct PolicyOptions {
  // fifo: in order of submission. priority: lowest CommunicationSegment::priority first. random: any legal
  // order, drawn from `seed` for each segment. plan: in the order of a plan, each segment not before its
  // slot.
  std::string name = "priority";
  std::uint64_t seed = 0;
};

// Returns the policy. Throws UsageError for an unknown name.
std::unique_ptr<SchedulePolicy> make_policy(const PolicyOptions& options);

}  // namespace rondo
