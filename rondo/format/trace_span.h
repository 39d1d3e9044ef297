#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rondo {

// Row of a rank's timeline.
enum class Lane { compute = 0, communication = 1 };
// Returns "compute" or "communication".
std::string_view to_string(Lane lane);

// An interval on a rank: the pass of a unit, a phase of the step, or a communication operation, as passed
// from the engine to the report. Times are monotonic_ns() (base/time.h), so that ranks of one host align.
struct TraceSpan {
  std::string name = {};                    // "forward", "backward", "optimizer", "all_reduce"
  Lane lane = Lane::compute;                // row of the timeline
  std::int64_t begin_ns = 0;                // start time
  std::int64_t end_ns = 0;                  // end time
  std::optional<std::int64_t> step = {};    // training step, from 1
  std::optional<std::int64_t> bucket = {};  // index of the gradient bucket, or of the block within its unit
  std::optional<std::uint64_t> bytes = {};  // payload size
  std::string unit = {};                    // unit of the model; empty: not of a single unit

  // For communication, if known:
  std::optional<std::int64_t> queued_ns = {};   // time at which the operation was ready
  std::optional<std::int64_t> exposed_ns = {};  // duration of computation's wait for the operation
  std::int64_t waited_ns = 0;                   // time of the first such wait
  // Computation during the operation with its duration in nanoseconds, longest first.
  std::vector<std::pair<std::string, std::int64_t>> overlapped = {};
};

// Amounts in use at one time. A viewer draws the values as stacked curves above the rank's lanes.
struct TraceCounter {
  std::string name;                                           // "memory"
  std::int64_t time_ns = 0;                                   // clock of TraceSpan::begin_ns
  std::optional<std::int64_t> step;                           // training step, from 1
  std::vector<std::pair<std::string, std::uint64_t>> values;  // bytes by purpose
};

}  // namespace rondo
