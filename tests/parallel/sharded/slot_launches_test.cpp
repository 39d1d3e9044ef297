#include "rondo/parallel/sharded/segment_schedule.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rondo::slot_launches_test {
namespace {

using cost::JobKind;

// Units a and b. Slots: 0 update, 1 and 2 forward, 3 (b) and 4 (a) backward, 5 epilogue, 6 end.
cost::StepPlan two_units() {
  cost::StepPlan plan;
  plan.units = {{.name = "a", .choice = {}, .parameter_bytes = {}},
                {.name = "b", .choice = {}, .parameter_bytes = {}}};
  plan.schedule.emplace();
  plan.schedule->segments = {{JobKind::gather_forward, 0, 0, 0, 10}, {JobKind::gather_forward, 1, 0, 0, 10},
                             {JobKind::gather_forward, 1, 0, 1, 10}, {JobKind::gather_backward, 0, 0, 3, 10},
                             {JobKind::reduce_scatter, 1, 0, 4, 10}, {JobKind::reduce_scatter, 0, 0, 5, 10}};
  plan.schedule->waits = {{5, 4}};
  return plan;
}

TEST(SlotLaunches, ListsLaunchesInTheModelsUnitOrder) {
  const SlotLaunches launches(two_units(), {"b", "a"});  // the model names b first, the plan runs a first
  EXPECT_EQ(launches.forward_slot(0, 1), 1);
  EXPECT_EQ(launches.backward_slot(0, 0), 3);
  EXPECT_EQ(launches.epilogue_slot(), 5);
  ASSERT_EQ(launches.gathers(0).size(), 2U);
  EXPECT_EQ(launches.gathers(0)[0].unit, 1U);
  EXPECT_EQ(launches.gathers(0)[1].unit, 0U);
  EXPECT_TRUE(launches.gathers(1).empty());  // the gather of b has already started
  ASSERT_EQ(launches.gathers(3).size(), 1U);
  EXPECT_EQ(launches.gathers(3)[0].purpose, JobKind::gather_backward);
  EXPECT_EQ(launches.gradients_due(5), (std::vector<std::size_t>{0}));
  EXPECT_EQ(launches.segments(0), 2);
  EXPECT_EQ(launches.segments(1), 1);
}

TEST(SlotLaunches, PlacesSegmentsThatTheEngineCutsDifferently) {
  const SlotLaunches launches(two_units(), {"a", "b"});
  const SegmentOrder order = launches.order(1, JobKind::gather_forward, 0);
  EXPECT_EQ(order.of(0, 2).slot, 0);
  EXPECT_EQ(order.of(1, 2).slot, 1);
  EXPECT_EQ(order.of(1, 2).priority, 2);
  EXPECT_EQ(order.of(3, 4).slot, 1);
  EXPECT_EQ(order.of(0, 1).slot, 0);
  EXPECT_EQ(launches.order(1, JobKind::all_reduce, 0).of(0, 3).slot, 0);
}

}  // namespace
}  // namespace rondo::slot_launches_test
