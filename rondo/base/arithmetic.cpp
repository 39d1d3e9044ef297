#include "rondo/base/arithmetic.h"

#include <algorithm>
#include <cstdio>

namespace rondo {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

// bench/peers/peer_ratio.py applies the same limit to measurements in Python.
constexpr double kMostOverMinimum = 3;

}  // namespace

const char* const kPeerRatioRule =
    "Ratios to a peer are of p50; those marked * are of minima, because the peer's p50 is more than 3 times "
    "its minimum.";

PeerRatio peer_ratio(const RepeatedTime& ours, const RepeatedTime& peer) {
  const bool of_minima = peer.p50 > kMostOverMinimum * peer.min;
  const double our_time = of_minima ? ours.min : ours.p50;
  if (our_time <= 0) return {0, of_minima};
  return {(of_minima ? peer.min : peer.p50) / our_time, of_minima};
}

std::string to_string(const PeerRatio& ratio) {
  char text[48];
  std::snprintf(text, sizeof text, ratio.value < 100 ? "%.1fx%s" : "%.0fx%s", ratio.value,
                ratio.of_minima ? "*" : "");
  return text;
}

}  // namespace rondo
