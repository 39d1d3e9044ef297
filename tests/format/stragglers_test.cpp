#include "rondo/format/report/stragglers.h"

#include <gtest/gtest.h>

#include "rondo/format/compute_timeline.h"

namespace rondo::stragglers_test {
namespace {

MetricsRow row(int rank, std::int64_t step, double compute_ms, double waiting_ms, std::int64_t steps = 1) {
  MetricsRow row;
  row.rank = rank;
  row.step = step;
  row.compute_ms = compute_ms;
  row.exposed_comm_ms = waiting_ms;
  row.step_ms = compute_ms + waiting_ms;
  if (steps > 1) row.steps = steps;
  return row;
}

Trace::Event event(int rank, const char* name, const char* unit, std::int64_t begin_ms, std::int64_t end_ms) {
  Trace::Event event{.rank = rank, .event = {}};
  event.event.name = name;
  event.event.unit = unit;
  event.event.begin_ns = begin_ms * 1'000'000;
  event.event.end_ns = end_ms * 1'000'000;
  return event;
}

TEST(RankTimes, MeansCountEachStepOnce) {
  const std::vector<MetricsRow> rows{row(0, 3, 10, 2, 3), row(0, 4, 30, 2), row(1, 4, 20, 0)};
  const std::vector<RankTimes> all = rank_times(rows);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_DOUBLE_EQ(all[0].compute_ms, 15);  // three steps of 10 ms, one of 30 ms
  EXPECT_DOUBLE_EQ(all[0].exposed_comm_ms, 2);
  EXPECT_DOUBLE_EQ(all[0].step_ms, 17);
  EXPECT_DOUBLE_EQ(all[1].compute_ms, 20);
  EXPECT_DOUBLE_EQ(rank_times(rows, 1)[0].compute_ms, 30);
}

// The other ranks wait for it, so the wall time is equal on all ranks and only the compute time differs.
TEST(Straggler, IsTheRankWithMostComputation) {
  const std::vector<MetricsRow> rows{row(0, 1, 100, 50), row(1, 1, 149, 1), row(2, 1, 102, 48)};
  const auto straggler = find_straggler(rank_times(rows));
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, 1);
  EXPECT_DOUBLE_EQ(straggler->compute_ms, 149);
  EXPECT_DOUBLE_EQ(straggler->others_ms, 102);
  EXPECT_NE(to_string(*straggler).find("rank 1"), std::string::npos);
  EXPECT_NE(to_string(*straggler).find("1.46"), std::string::npos) << to_string(*straggler);
}

TEST(Straggler, ThereIsNoneAmongEquals) {
  EXPECT_FALSE(find_straggler(rank_times(std::vector{row(0, 1, 100, 5), row(1, 1, 105, 0)})));
  EXPECT_FALSE(find_straggler(rank_times(std::vector{row(0, 1, 100, 5)})));
  EXPECT_FALSE(find_straggler({}));
}

TEST(Straggler, ItsTraceNamesWhereTheTimeGoes) {
  Straggler straggler{.rank = 1, .compute_ms = 40, .others_ms = 30};
  StepTimeline timeline;
  timeline.events = {event(0, "forward", "h.0", 0, 10), event(0, "backward", "h.0", 10, 20),
                     event(0, kWaitEvent, "", 20, 30), event(1, "forward", "h.0", 0, 11),
                     event(1, "backward", "h.0", 11, 30)};
  find_slow_part(straggler, std::vector{timeline});
  EXPECT_EQ(straggler.part, "backward of h.0");
  EXPECT_DOUBLE_EQ(straggler.part_ms, 19);
  EXPECT_DOUBLE_EQ(straggler.part_others_ms, 10);
  EXPECT_NE(to_string(straggler).find("backward of h.0"), std::string::npos);
}

}  // namespace
}  // namespace rondo::stragglers_test
