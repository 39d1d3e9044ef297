#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

// The least number of groups of `by` that hold `value`; both positive, or `value` 0.
constexpr std::int64_t divide_rounding_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

// The value in the middle, of an even number of values the larger of the two; 0 of none.
double median(std::vector<double> values);

// A time that was measured often, in any unit.
struct RepeatedTime {
  double p50 = 0;
  double min = 0;
};

// How many times faster one is than its peer.
struct PeerRatio {
  double value = 0;
  bool of_minima = false;  // else of medians
};

// Of medians. Of minima where the peer's median is more than three times its minimum: such a median is
// the time for which the system let others run, and says nothing of the peer. 0 where `ours` is nothing.
PeerRatio peer_ratio(const RepeatedTime& ours, const RepeatedTime& peer);

// "42x", with an asterisk where it is of minima.
std::string to_string(const PeerRatio& ratio);

// The rule in one sentence, for below a table.
extern const char* const kPeerRatioRule;

}  // namespace rondo
