#include "rondo/format/trace_lanes.h"

#include <algorithm>
#include <map>

namespace rondo {

std::vector<int> places_in_lanes(std::span<const Trace::Event> events) {
  std::map<int, std::vector<std::int64_t>> busy_until;  // by rank, by place
  std::vector<int> places;
  for (const auto& [rank, event] : events) {
    if (event.lane == Lane::compute) {
      places.push_back(0);
      continue;
    }
    std::vector<std::int64_t>& ends = busy_until[rank];
    // The first lane that is free by then.
    auto place =
        std::find_if(ends.begin(), ends.end(), [begin = event.begin_ns](auto end) { return end <= begin; });
    if (place == ends.end()) place = ends.insert(ends.end(), 0);
    *place = std::max(event.begin_ns, event.end_ns);
    places.push_back(static_cast<int>(place - ends.begin()));
  }
  return places;
}

}  // namespace rondo
