#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/format/metrics.h"
#include "rondo/format/report/run_data.h"

namespace rondo {

// Where a rank's steps went, as means over some of them.
struct RankTimes {
  int rank = 0;
  double step_ms = 0;
  double compute_ms = 0;       // without the time in which it stood still for communication
  double comm_ms = 0;          // communication, overlapped or not
  double exposed_comm_ms = 0;  // the part of it that computation waited for
};

// By rank, of the last `steps` steps that `rows` tell of; 0 is all of them. Ranks without times are left out.
std::vector<RankTimes> rank_times(std::span<const MetricsRow> rows, std::int64_t steps = 0);

// A rank that computes longer than the others, who wait for it: its own computing time tells, because the
// wall time of a step is the same on all.
struct Straggler {
  int rank = 0;
  double compute_ms = 0;  // of a step
  double others_ms = 0;   // median of the other ranks
  // Where most of the difference is, "backward of h.3" or "data"; empty without a trace.
  std::string part = {};
  double part_ms = 0;
  double part_others_ms = 0;
};

// The rank that computes longest, if that is at least `factor` times the median of the others.
std::optional<Straggler> find_straggler(std::span<const RankTimes> ranks, double factor = 1.1);

// Fills part, from the steps of a trace.
void find_slow_part(Straggler& straggler, std::span<const StepTimeline> timelines);

// "rank 1 computes 1.32 times as long as the others (155 against 117 ms a step), most of it in backward of
// h.3 (12.1 against 8.0 ms)".
std::string to_string(const Straggler& straggler);

}  // namespace rondo
