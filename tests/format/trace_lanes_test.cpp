#include "rondo/format/trace.h"

#include <gtest/gtest.h>

namespace rondo::trace_lanes_test {
namespace {

Trace::Event sent(int rank, std::int64_t begin, std::int64_t end) {
  return {rank, {.name = "send", .lane = Lane::communication, .begin_ns = begin, .end_ns = end}};
}

TEST(TraceLanes, TakesTheFirstFreeLaneOfARank) {
  const std::vector<Trace::Event> events{sent(0, 0, 10),
                                         sent(0, 1, 3),
                                         sent(1, 1, 5),
                                         sent(0, 2, 20),
                                         sent(0, 3, 4),
                                         sent(0, 10, 9),
                                         {0, {.name = "forward", .begin_ns = 11, .end_ns = 12}},
                                         sent(0, 12, 13),
                                         sent(0, 12, 30)};
  EXPECT_EQ(places_in_lanes(events), (std::vector<int>{0, 1, 0, 2, 1, 0, 0, 0, 1}));
}

// As many lanes as operations: a linear search per operation would take minutes.
TEST(TraceLanes, GivesManyConcurrentEventsTheirOwnLanes) {
  constexpr int kMany = 200'000;
  std::vector<Trace::Event> events;
  for (int i = 0; i < kMany; ++i) events.push_back(sent(0, i, 1'000'000));
  events.push_back(sent(0, 1'000'000, 1'000'001));
  const std::vector<int> places = places_in_lanes(events);
  for (int i = 0; i < kMany; ++i) ASSERT_EQ(places[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(places.back(), 0);
}

}  // namespace
}  // namespace rondo::trace_lanes_test
