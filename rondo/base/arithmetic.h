#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

// Returns `value` divided by `by`, rounded up. Requires `by` > 0 and `value` >= 0.
constexpr std::int64_t divide_rounding_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

// Returns the median; for an even number of values the larger of the two middle values. Returns 0 if `values`
// is empty.
double median(std::vector<double> values);

// Statistics of a repeated time measurement, in any unit.
struct RepeatedTime {
  double p50 = 0;
  double min = 0;
};

// The speedup of one library over a peer.
struct PeerRatio {
  double value = 0;
  bool of_minima = false;  // true: ratio of minima; false: ratio of medians
};

// Returns the peer's time divided by ours. Compares medians, or minima if the peer's median is more than 3
// times its minimum: such a median measures other processes on the machine, not the peer. Returns 0 if our
// time is 0.
PeerRatio peer_ratio(const RepeatedTime& ours, const RepeatedTime& peer);

// Returns text such as "42x", followed by an asterisk for a ratio of minima.
std::string to_string(const PeerRatio& ratio);

// The rule for the asterisk in one sentence, printed below a table.
extern const char* const kPeerRatioRule;

}  // namespace rondo
