#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/format/metrics.h"
#include "rondo/format/report/run_data.h"

namespace rondo {

// Time split of a rank's steps, as means over steps.
struct RankTimes {
  int rank = 0;
  double step_ms = 0;
  double compute_ms = 0;       // without waiting for communication
  double comm_ms = 0;          // communication, overlapped or not
  double exposed_comm_ms = 0;  // part of comm_ms that computation waited for
};

// Returns the means by rank over the last `steps` steps in `rows`; 0 means all steps. Omits ranks without
// times.
std::vector<RankTimes> rank_times(std::span<const MetricsRow> rows, std::int64_t steps = 0);

// A rank that computes longer than the others, which wait for it. Detected by compute time, because the wall
// time of a step is equal on all ranks.
struct Straggler {
  int rank = 0;
  double compute_ms = 0;  // per step
  double others_ms = 0;   // median of the other ranks
  // Part with most of the difference, "backward of h.3" or "data"; empty without a trace.
  std::string part = {};
  double part_ms = 0;
  double part_others_ms = 0;
};

// Returns the rank with the longest compute time if that is at least `factor` times the median of the others.
std::optional<Straggler> find_straggler(std::span<const RankTimes> ranks, double factor = 1.1);

// Fills `part` and its times from the steps of a trace.
void find_slow_part(Straggler& straggler, std::span<const StepTimeline> timelines);

// Formats a straggler: "rank 1 computes 1.32 times as long as the others (155 against 117 ms a step), most of
// it in backward of h.3 (12.1 against 8.0 ms)".
std::string to_string(const Straggler& straggler);

}  // namespace rondo
