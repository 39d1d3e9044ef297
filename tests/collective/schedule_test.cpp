// Every algorithm, operation and world size from 1 to 17, on symbols: no data, no communication.
#include "rondo/collective/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"
#include "tests/collective/schedule_check.h"
#include "tests/errors.h"

namespace rondo::collective::schedule_test {
namespace {

using schedule_check::check_schedules;

constexpr int kLargestWorld = 17;

// Returns the layouts of hosts for a hierarchical schedule: one host, two alternating, blocks of three (the
// last may be smaller).
std::vector<std::vector<int>> host_layouts(int world) {
  std::vector<int> one;
  std::vector<int> turns;
  std::vector<int> blocks;
  for (int rank = 0; rank < world; ++rank) {
    one.push_back(7);
    turns.push_back(rank % 2);
    blocks.push_back(rank / 3);
  }
  return {one, turns, blocks};
}

// Calls use(algorithm, request) for every combination, at one size; request.rank is 0.
template <class Use>
void for_every_schedule(const Use& use) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const OperationKind operation : algorithm.operations) {
      for (int world = 1; world <= kLargestWorld; ++world) {
        ScheduleRequest request;
        request.operation = operation;
        request.world = world;
        request.root = (world * 2) / 3;
        const bool has_hosts = algorithm.name == "hierarchical";
        for (const std::vector<int>& hosts :
             has_hosts ? host_layouts(world) : std::vector<std::vector<int>>{{}}) {
          request.hosts = hosts;
          request.in_rank_order = false;
          use(algorithm, request);
          request.in_rank_order = reduces(operation);
          if (request.in_rank_order) use(algorithm, request);
        }
      }
    }
  }
}

TEST(ScheduleTest, ReducesEveryChunkOnceWithoutDeadlock) {
  int checked = 0;
  for_every_schedule([&](const Algorithm& algorithm, ScheduleRequest request) {
    const auto world = static_cast<std::uint64_t>(request.world);
    // Zero elements, one, one fewer than ranks, and an uneven number in a few segments.
    for (const std::uint64_t elements : {std::uint64_t{0}, std::uint64_t{1}, world - 1, 2 * world + 3}) {
      request.element_bytes = 2;
      request.bytes = {elements * request.element_bytes};
      request.segment = {10};
      ASSERT_NO_THROW(check_schedules(make_schedules(algorithm.name, request)));
      ++checked;
    }
  });
  EXPECT_GT(checked, 5000);
}

TEST(ScheduleTest, RoundsBytesAndScratchFollowTheClosedForms) {
  for_every_schedule([&](const Algorithm& algorithm, ScheduleRequest request) {
    // Divides evenly among ranks, powers of two and halves; elements are cache lines, so scratch has no gaps.
    request.element_bytes = 64;
    request.bytes = {64U * 32 * static_cast<std::uint64_t>(request.world)};
    request.segment = {request.bytes.count / 8};
    for (Schedule& schedule : make_schedules(algorithm.name, request)) {
      request.rank = schedule.rank;
      const Cost counted = count_cost(schedule);
      const Cost closed = closed_form_cost(algorithm.name, request);
      const std::string what =
          str(algorithm.name, " ", rondo::name(request.operation), ", rank ", schedule.rank, " of ",
              request.world, " root ", request.root, request.in_rank_order ? ", in rank order" : "");
      ASSERT_EQ(counted.rounds, closed.rounds) << what;
      ASSERT_EQ(counted.bytes_sent, closed.bytes_sent) << what;
      ASSERT_EQ(counted.bytes_received, closed.bytes_received) << what;
      ASSERT_EQ(counted.scratch_bytes, closed.scratch_bytes) << what;
    }
  });
}

TEST(ScheduleTest, SchedulesStayCorrectOnOtherGrids) {
  for (const OperationKind operation : find_algorithm("torus_2d").operations) {
    for (const int rows : {1, 2, 3, 4, 6, 12}) {
      ScheduleRequest request{
          .operation = operation, .world = 12, .bytes = {12 * 24 * 4}, .root = 7, .rows = rows};
      ASSERT_NO_THROW(check_schedules(make_schedules("torus_2d", request))) << rows;
      request.rank = 5;
      ASSERT_EQ(count_cost(make_schedule("torus_2d", request)), closed_form_cost("torus_2d", request))
          << rows;
    }
  }
}

// The figures of docs/algorithms.md, computed by hand.
TEST(ScheduleTest, WellKnownFigures) {
  const auto cost = [](const std::string& name, OperationKind operation, int world, int rank,
                       std::uint64_t bytes) {
    ScheduleRequest request{.operation = operation, .rank = rank, .world = world, .bytes = {bytes}};
    return count_cost(make_schedule(name, request));
  };
  constexpr std::uint64_t kBytes = 1 << 20;
  EXPECT_EQ(cost("ring", OperationKind::all_reduce, 4, 2, kBytes),
            (Cost{6, kBytes * 3 / 2, kBytes * 3 / 2, 0}));
  EXPECT_EQ(cost("halving_doubling", OperationKind::all_reduce, 8, 3, kBytes),
            (Cost{6, kBytes * 7 / 4, kBytes * 7 / 4, 0}));
  EXPECT_EQ(cost("all_to_all", OperationKind::all_reduce, 4, 1, kBytes),
            (Cost{2, kBytes * 3 / 2, kBytes * 3 / 2, kBytes * 3 / 4}));
  EXPECT_EQ(cost("reduce_broadcast", OperationKind::all_reduce, 8, 7, kBytes), (Cost{6, kBytes, kBytes, 0}));
  EXPECT_EQ(cost("torus_2d", OperationKind::all_reduce, 16, 5, kBytes),
            (Cost{12, kBytes * 15 / 8, kBytes * 15 / 8, 0}));
  EXPECT_EQ(cost("direct", OperationKind::all_reduce, 4, 0, kBytes),
            (Cost{1, 3 * kBytes, 3 * kBytes, 3 * kBytes}));
}

// Tests that the checker detects faults.
class BrokenSchedules : public ::testing::Test {
 protected:
  void SetUp() override {
    schedules = make_schedules("ring", {.operation = OperationKind::all_reduce, .world = 3, .bytes = {36}});
    ASSERT_NO_THROW(check_schedules(schedules));
  }
  void expect_found(const std::string& named) {
    try {
      check_schedules(schedules);
      FAIL() << "not found: " << named;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  }
  Step& first(int rank, StepKind kind) {
    auto& steps = schedules[static_cast<std::size_t>(rank)].steps;
    return *std::find_if(steps.begin(), steps.end(), [&](const Step& step) { return step.kind == kind; });
  }
  std::vector<Schedule> schedules;
};

TEST_F(BrokenSchedules, ALostStepIsADeadlock) {
  auto& steps = schedules[1].steps;
  const auto last_send = std::find_if(steps.rbegin(), steps.rend(),
                                      [](const Step& step) { return step.kind == StepKind::send; });
  steps.erase(std::next(last_send).base());
  expect_found("rank 2 waits for ever, for ranks 1");
}

TEST_F(BrokenSchedules, AContributionAddedTwice) {
  // The sum is received once more instead of a finished piece.
  for (Step& step : schedules[0].steps) {
    if (step.kind == StepKind::recv) step.kind = StepKind::recv_reduce;
  }
  expect_found("twice");
}

TEST_F(BrokenSchedules, AContributionForgotten) {
  first(2, StepKind::recv_reduce).kind = StepKind::recv;
  expect_found("does not hold every contribution once");
}

TEST_F(BrokenSchedules, AnotherPiece) {
  Step& step = first(1, StepKind::recv_reduce);
  step.range.offset = (step.range.offset + 12) % 36;
  // The range is now the piece that is sent in the same round.
  expect_found("rank 1");
}

TEST_F(BrokenSchedules, SizesThatDiffer) {
  first(0, StepKind::send).range.bytes -= 4;
  expect_found("meets a send of 8 bytes");
}

TEST_F(BrokenSchedules, HalfAnElement) {
  first(0, StepKind::send).range.bytes -= 2;
  first(1, StepKind::recv_reduce).range.bytes -= 2;
  expect_found("cuts an element");
}

TEST_F(BrokenSchedules, OutsideOfTheBuffer) {
  first(0, StepKind::send).range.offset = 1000;
  expect_found("leaves its buffer");
}

TEST_F(BrokenSchedules, ScratchThatNobodyWrote) {
  schedules[0].scratch = {12};
  first(0, StepKind::send).range = {Buffer::scratch, 0, 12};
  expect_found("nobody has written");
}

TEST_F(BrokenSchedules, RoundsThatDiffer) {
  for (Step& step : schedules[2].steps) ++step.round;
  for (Schedule& schedule : schedules) ++schedule.rounds;
  expect_found("round");
}

TEST(ScheduleTest, ACopyMovesWhatWasReceived) {
  std::vector<Schedule> schedules =
      make_schedules("naive", {.operation = OperationKind::broadcast, .world = 2, .bytes = {8}});
  Schedule& receiver = schedules[1];
  receiver.scratch = {8};
  receiver.steps[0].range.buffer = Buffer::scratch;
  EXPECT_THROW(check_schedules(schedules), Error);
  receiver.steps.push_back({StepKind::copy, 0, -1, {Buffer::data, 0, 8}, {{Buffer::scratch, 0, 8}}});
  EXPECT_NO_THROW(check_schedules(schedules));
}

TEST(ScheduleTest, BadRequestsNameWhatIsWrong) {
  const auto expect = [](const std::string& name, const ScheduleRequest& request,
                         const std::vector<const char*>& facts) {
    testing::expect_facts(testing::message_of<UsageError>([&] { make_schedule(name, request); }), facts);
  };
  expect("rings", {},
         {"'rings'", "naive", "all_to_all", "reduce_broadcast", "ring", "halving_doubling",
          "double_binary_tree", "torus_2d", "hierarchical", "direct"});
  expect("double_binary_tree", {.operation = OperationKind::all_gather},
         {"double_binary_tree", "all_gather", "all_reduce", "broadcast", "reduce"});
  expect("ring", {.operation = OperationKind::barrier},
         {"ring", "barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"});
  expect("ring", {.rank = 4, .world = 4}, {"rank 4", "world of 4"});
  expect("ring", {.world = 4, .root = -1}, {"root -1", "world of 4"});
  expect("ring", {.bytes = {6}}, {"6 bytes", "4 bytes"});
  expect("torus_2d", {.world = 6, .rows = 4}, {"6 ranks", "4 rows"});
  expect("hierarchical", {.world = 3, .hosts = {0, 1}}, {"hosts", "2 ranks", "3"});
  EXPECT_THROW(find_operation("all_reduse"), UsageError);
}

TEST(ScheduleTest, TheTableShowsEveryStep) {
  const std::vector<Schedule> schedules =
      make_schedules("ring", {.operation = OperationKind::all_reduce, .world = 4, .bytes = KiB(4)});
  const std::string table = schedule_table(schedules);
  EXPECT_NE(table.find("ring all_reduce, 4 ranks, 4.0 KiB: 6 rounds"), std::string::npos) << table;
  EXPECT_NE(table.find("receive and add from rank 3"), std::string::npos) << table;
  // A heading, a line of columns, 4 ranks x 6 rounds x 2 steps, an empty line, and one line per rank with a
  // heading.
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 48 + 2 + 4);
}

}  // namespace
}  // namespace rondo::collective::schedule_test
