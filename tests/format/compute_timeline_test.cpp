#include "rondo/format/compute_timeline.h"

#include <gtest/gtest.h>

namespace rondo::compute_timeline_test {
namespace {

using Times = std::vector<std::pair<std::string, std::int64_t>>;

TraceSpan computed(std::string name, std::int64_t begin, std::int64_t end, std::string unit = {}) {
  TraceSpan event;
  event.name = std::move(name);
  event.begin_ns = begin;
  event.end_ns = end;
  event.unit = std::move(unit);
  return event;
}

// forward 0..100 with two units and a wait between them; backward 100..200 with one unit.
std::vector<TraceSpan> step() {
  std::vector<TraceSpan> events = {
      computed("backward", 100, 200),     computed("forward", 0, 100),
      computed("forward", 10, 40, "h.0"), computed(kWaitEvent, 40, 60, "h.1"),
      computed("forward", 60, 90, "h.1"), computed("backward", 110, 180, "h.1"),
  };
  nest(events);
  return events;
}

Times during(std::vector<TimeSpan> spans) { return ComputeTimeline(step()).during(joined(std::move(spans))); }

TEST(ComputeTimeline, TheInnermostEventIsWhatWasComputed) {
  EXPECT_EQ(during({{0, 1000}}), (Times{{"backward of h.1", 70},
                                        {"backward", 30},
                                        {"forward of h.0", 30},
                                        {"forward of h.1", 30},
                                        {"forward", 20}}));
}

TEST(ComputeTimeline, PartOfAnEventCountsProportionally) {
  EXPECT_EQ(during({{30, 65}}), (Times{{"forward of h.0", 10}, {"forward of h.1", 5}}));
  EXPECT_EQ(during({{95, 120}}), (Times{{"backward", 10}, {"backward of h.1", 10}, {"forward", 5}}));
}

TEST(ComputeTimeline, WaitingIsNoComputation) {
  EXPECT_EQ(during({{40, 60}}), Times{});
  EXPECT_EQ(during({{45, 61}}), (Times{{"forward of h.1", 1}}));
}

TEST(ComputeTimeline, NothingIsComputedOutsideOfEvents) {
  EXPECT_EQ(during({{200, 300}}), Times{});
  EXPECT_EQ(during({}), Times{});
  EXPECT_EQ(ComputeTimeline({}).during(std::vector<TimeSpan>{{0, 10}}), Times{});
}

TEST(ComputeTimeline, BlocksUnderWayTogetherCountOnce) {
  EXPECT_EQ(joined({{10, 30}, {0, 5}, {20, 40}, {40, 45}}).size(), 2U);
  EXPECT_EQ(during({{10, 30}, {20, 40}}), (Times{{"forward of h.0", 30}}));
}

TEST(ComputeTimeline, CrossingEventsAreCutAtTheOuterEnd) {
  std::vector<TraceSpan> events = {computed("backward", 0, 100), computed("backward", 10, 60, "a"),
                                   computed("backward", 50, 120, "b")};
  nest(events);
  EXPECT_EQ(events[2].end_ns, 60);
  EXPECT_EQ(ComputeTimeline(events).during(std::vector<TimeSpan>{{0, 200}}),
            (Times{{"backward", 50}, {"backward of a", 40}, {"backward of b", 10}}));
}

}  // namespace
}  // namespace rondo::compute_timeline_test
