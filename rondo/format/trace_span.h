#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rondo {

// The row of a rank's timeline that a span lies in.
enum class Lane { compute = 0, communication = 1 };
// "compute", "communication".
std::string_view to_string(Lane lane);

// Something on a rank that took time: the pass of a unit, a phase of the step, an operation of communication
// on its way from the engine to the report. Times are monotonic_ns() (base/time.h), so that ranks of one host
// line up.
struct TraceSpan {
  std::string name = {};                    // "forward", "backward", "optimizer", "all_reduce"
  Lane lane = Lane::compute;                // its row
  std::int64_t begin_ns = 0;                // it started
  std::int64_t end_ns = 0;                  // it was finished
  std::optional<std::int64_t> step = {};    // of the training, counted from 1
  std::optional<std::int64_t> bucket = {};  // index of the gradient bucket, or of the block within its unit
  std::optional<std::uint64_t> bytes = {};  // payload
  std::string unit = {};                    // of the model; empty: it is not one unit's

  // Of communication, where that is known.
  std::optional<std::int64_t> queued_ns = {};   // it was ready to go
  std::optional<std::int64_t> exposed_ns = {};  // for so long computation stood still for it ...
  std::int64_t waited_ns = 0;                   // ... for the first time then
  // What was computed while it was under way, and for how long, longest first.
  std::vector<std::pair<std::string, std::int64_t>> overlapped = {};
};

// What was in use at a moment: one curve for each of the values, stacked, above the rank's lanes.
struct TraceCounter {
  std::string name;                                           // "memory"
  std::int64_t time_ns = 0;                                   // as TraceSpan::begin_ns
  std::optional<std::int64_t> step;                           // of the training, counted from 1
  std::vector<std::pair<std::string, std::uint64_t>> values;  // by what it was used for, in bytes
};

}  // namespace rondo
