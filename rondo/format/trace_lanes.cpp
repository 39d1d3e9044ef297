#include "rondo/format/trace_lanes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

namespace rondo {
namespace {

template <class Value>
using SmallestFirst = std::priority_queue<Value, std::vector<Value>, std::greater<>>;

// The lanes of a rank, as far as they were used.
class Lanes {
 public:
  // The first lane that is free at `begin`, which is never before that of the call before.
  int take(std::int64_t begin, std::int64_t end) {
    for (; !busy_.empty() && busy_.top().first <= begin; busy_.pop()) free_.push(busy_.top().second);
    int place = count_;
    if (free_.empty()) {
      ++count_;
    } else {
      place = free_.top();
      free_.pop();
    }
    busy_.emplace(std::max(begin, end), place);
    return place;
  }

 private:
  SmallestFirst<std::pair<std::int64_t, int>> busy_;  // until when, which
  SmallestFirst<int> free_;
  int count_ = 0;
};

}  // namespace

std::vector<int> places_in_lanes(std::span<const Trace::Event> events) {
  std::map<int, Lanes> lanes;  // by rank
  std::vector<int> places;
  for (const auto& [rank, event] : events) {
    if (event.lane == Lane::compute) {
      places.push_back(0);
      continue;
    }
    places.push_back(lanes[rank].take(event.begin_ns, event.end_ns));
  }
  return places;
}

}  // namespace rondo
