#pragma once

#include <string>

namespace rondo {

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
