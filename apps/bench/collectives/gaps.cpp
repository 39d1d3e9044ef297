#include "apps/bench/collectives/gaps.h"

#include <algorithm>

namespace rondo::bench {

Gaps watch_for_gaps(Duration duration) {
  constexpr double kGapNs = 20e3;
  const long long start = monotonic_ns();
  const auto length = static_cast<double>(std::chrono::nanoseconds(duration).count());
  Gaps gaps;
  double lost_ns = 0;
  long long last = start;
  while (static_cast<double>(last - start) < length) {
    const long long now = monotonic_ns();
    const auto step = static_cast<double>(now - last);
    gaps.longest_us = std::max(gaps.longest_us, step / 1e3);
    if (step > kGapNs) lost_ns += step;
    last = now;
  }
  gaps.lost = lost_ns / static_cast<double>(last - start);
  return gaps;
}

}  // namespace rondo::bench
