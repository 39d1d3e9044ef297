#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/format/trace_span.h"

namespace rondo {

// Name of the compute lane's events in which the rank stood still.
inline constexpr const char* kWaitEvent = "wait";

// Half-open, in nanoseconds.
struct TimeSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t length() const { return end_ns - begin_ns; }
};

// `spans` in order, joined where they overlap.
std::vector<TimeSpan> joined(std::vector<TimeSpan> spans);

// Time in which at least one of `spans` was under way.
Duration time_under_way(std::span<const TraceSpan> spans);

// Makes events of one thread, in any order, nest: what begins within another event ends with it at the
// latest. Afterwards they are by begin time, outer before inner.
void nest(std::vector<TraceSpan>& events);

// What one rank computed at each moment: of events that lie in each other the innermost. Waiting is no
// computation.
class ComputeTimeline {
 public:
  // `events` of the compute lane, which nest().
  explicit ComputeTimeline(std::span<const TraceSpan> events);

  // What was computed during `spans`, which are in order and do not overlap, and for how long, longest first:
  // {"backward of h.3", 1200000}.
  std::vector<std::pair<std::string, std::int64_t>> during(std::span<const TimeSpan> spans) const;

 private:
  struct Segment {
    TimeSpan time;
    std::string what;
  };
  std::vector<Segment> segments_;  // in order
};

}  // namespace rondo
