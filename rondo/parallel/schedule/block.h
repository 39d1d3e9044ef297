#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {

// A piece of communication that is started and waited for as a whole: a collective on a part of a unit's flat
// buffer.
struct CommunicationBlock {
  std::string collective;  // "all_gather", "reduce_scatter", "all_reduce"
  std::string unit;
  std::size_t index = 0;  // among the unit's blocks
  Bytes bytes;            // that this rank's part of the model moves
  // What is needed first has the least.
  std::int64_t priority = 0;
  // A block submitted before that must be finished before this one may start.
  std::optional<std::uint64_t> after = {};
  // Begins it, without waiting. On all ranks in one order, which is the scheduler's care.
  std::function<c10::intrusive_ptr<c10d::Work>()> start;
  // Of a plan: not begun before BlockScheduler::reach() has come to this slot, unless somebody waits for it.
  std::int64_t slot = 0;
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

// A block's way, in monotonic_ns().
struct BlockRecord {
  std::string collective = {};
  std::string unit = {};
  std::size_t index = 0;
  Bytes bytes = {};
  std::int64_t queued_ns = 0;
  std::int64_t started_ns = 0;
  // As the engine says; of one that does not, when it was seen to be finished, so not before that.
  std::int64_t finished_ns = 0;
  // Computation stood still for it: when first, and for how long altogether.
  std::int64_t waited_ns = 0;
  std::int64_t exposed_ns = 0;
};

}  // namespace rondo
