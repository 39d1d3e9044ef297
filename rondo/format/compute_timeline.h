#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/format/trace_span.h"

namespace rondo {

// Name of the compute lane's events in which the rank waited.
inline constexpr const char* kWaitEvent = "wait";

// A half-open time interval in nanoseconds.
struct TimeSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t length() const { return end_ns - begin_ns; }
};

// Returns `spans` in order, with overlapping ones merged.
std::vector<TimeSpan> joined(std::vector<TimeSpan> spans);

// Returns the time during which at least one of `spans` was active.
Duration time_under_way(std::span<const TraceSpan> spans);

// Makes the events of one thread, given in any order, properly nested: an event that begins inside another
// one ends no later than it. Sorts them by begin time, outer before inner.
void nest(std::vector<TraceSpan>& events);

// Timeline of a rank's computation: at each moment the innermost of nested events. Waiting does not count as
// computation.
class ComputeTimeline {
 public:
  // `events` of the compute lane, already nested by nest().
  explicit ComputeTimeline(std::span<const TraceSpan> events);

  // Returns the names and nanoseconds of the computation during `spans`, longest first: {"backward of h.3",
  // 1200000}. `spans` must be sorted and must not overlap.
  std::vector<std::pair<std::string, std::int64_t>> during(std::span<const TimeSpan> spans) const;

 private:
  struct Segment {
    TimeSpan time;
    std::string what;
  };
  std::vector<Segment> segments_;  // in time order
};

}  // namespace rondo
