#include "rondo/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/pipeline/drawing.h"
#include "rondo/pipeline/simulation.h"
#include "tests/errors.h"

namespace rondo::schedule_test {
namespace {

using pipeline::Action;
using pipeline::ActionKind;
using pipeline::make_schedule;
using pipeline::Schedule;
using pipeline::Simulation;
using pipeline::StageTimes;
using ::rondo::testing::expect_facts;
using ::rondo::testing::message_of;

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, IsWholeAndEndsForAllSizes) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      for (const int chunks : {2, 3}) {
        const Schedule schedule = make_schedule(GetParam(), ranks, micro_batches, chunks);
        EXPECT_EQ(faults_of(schedule), std::vector<std::string>())
            << GetParam() << " " << ranks << " x " << micro_batches;
        const std::vector<int> peaks = peak_activations(schedule);
        for (int rank = 0; rank < ranks; ++rank) {
          const int bound = activation_bound(schedule, rank);
          const int peak = peaks[static_cast<std::size_t>(rank)];
          if (schedule.name.starts_with("zb")) {
            EXPECT_LE(peak, bound) << GetParam() << " " << ranks << " x " << micro_batches << " rank "
                                   << rank;
          } else {
            EXPECT_EQ(peak, bound) << GetParam() << " " << ranks << " x " << micro_batches << " rank "
                                   << rank;
          }
        }
      }
    }
  }
}

// Returns true if all ranks finish when sends and receives are both synchronous: both ranks of a message must
// reach it at the same time.
bool ends_in_order(const Schedule& schedule) {
  std::vector<std::size_t> next(schedule.actions.size(), 0);
  const auto at = [&](std::size_t rank) -> const Action* {
    return next[rank] < schedule.actions[rank].size() ? &schedule.actions[rank][next[rank]] : nullptr;
  };
  const auto rank_of = [&](int stage) {
    return static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      const Action* const action = at(rank);
      if (action == nullptr) continue;
      const bool activation = action->kind == ActionKind::send_activation;
      if (activation || action->kind == ActionKind::send_gradient) {
        const int receiver = action->stage + (activation ? 1 : -1);
        const Action wanted{activation ? ActionKind::receive_activation : ActionKind::receive_gradient,
                            receiver, action->micro_batch};
        const Action* const other = at(rank_of(receiver));
        if (other == nullptr || !(*other == wanted)) continue;
        ++next[rank_of(receiver)];
      } else if (action->kind == ActionKind::receive_activation ||
                 action->kind == ActionKind::receive_gradient) {
        continue;  // its sender advances both ranks
      }
      ++next[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (at(rank) != nullptr) return false;
  }
  return true;
}

TEST_P(EverySchedule, CanHaveItsMessagesInOneOrder) {
  const auto without_receives = [](std::vector<Action> actions) {
    std::erase_if(actions, [](const Action& action) {
      return action.kind == ActionKind::receive_activation || action.kind == ActionKind::receive_gradient;
    });
    return actions;
  };
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      for (const int chunks : {2, 3}) {
        const Schedule schedule = make_schedule(GetParam(), ranks, micro_batches, chunks);
        const Schedule ordered = in_message_order(schedule);
        const std::string what = str(GetParam(), " ", ranks, " x ", micro_batches, "\n", to_text(ordered));
        EXPECT_EQ(faults_of(ordered), std::vector<std::string>()) << what;
        EXPECT_TRUE(ends_in_order(ordered)) << what;
        for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
          EXPECT_EQ(without_receives(ordered.actions[rank]), without_receives(schedule.actions[rank]));
        EXPECT_TRUE(ends_in_order(in_message_order(forward_only(schedule)))) << what;
      }
    }
  }
}

TEST(Schedule, ReceivesAreElsewhereWhereMessagesHaveOneOrder) {
  const Schedule schedule = make_schedule("1f1b", 2, 4);
  EXPECT_FALSE(ends_in_order(schedule)) << to_text(schedule);
  EXPECT_EQ(to_text(in_message_order(make_schedule("1f1b", 2, 2))),
            "rank 0: F0.0 s0.0 F0.1 s0.1 R0.0 R0.1 B0.0 B0.1\n"
            "rank 1: r1.0 F1.0 r1.1 B1.0 S1.0 F1.1 B1.1 S1.1\n");
  EXPECT_EQ(to_text(forward_only(make_schedule("interleaved", 2, 1))),
            "rank 0: r2.0 F0.0 s0.0 F2.0 s2.0\n"
            "rank 1: r1.0 r3.0 F1.0 s1.0 F3.0\n");
}

TEST_P(EverySchedule, AddsGradientsInTheOrderOfMicroBatches) {
  const Schedule schedule = make_schedule(GetParam(), 4, 8);
  std::vector<int> next(schedule.rank_of_stage.size(), 0);
  for (const auto& rank : schedule.actions) {
    for (const Action& action : rank) {
      if (action.kind != ActionKind::backward && action.kind != ActionKind::backward_weight) continue;
      EXPECT_EQ(action.micro_batch, next[static_cast<std::size_t>(action.stage)]++);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, EverySchedule, ::testing::ValuesIn(pipeline::schedule_names()));

double longest_idle(const Schedule& schedule, const StageTimes& times) {
  const Simulation run = simulate(schedule, times);
  EXPECT_TRUE(run.stuck.empty());
  return *std::max_element(run.idle_s.begin(), run.idle_s.end());
}

TEST(Schedule, IdlesAsItsFormulaSays) {
  const StageTimes times{.forward_s = 2, .backward_input_s = 3, .backward_weight_s = 1};
  for (int p = 2; p <= 8; ++p) {
    for (const int m : {p, 2 * p, 4 * p}) {
      EXPECT_DOUBLE_EQ(longest_idle(make_schedule("gpipe", p, m), times), (p - 1) * 6.0);
      EXPECT_DOUBLE_EQ(longest_idle(make_schedule("1f1b", p, m), times), (p - 1) * 6.0);
      EXPECT_NEAR(longest_idle(make_schedule("interleaved", p, m, 2), times), (p - 1) * 6.0 / 2, 1e-9);
      EXPECT_NEAR(longest_idle(make_schedule("interleaved", p, m, 3), times), (p - 1) * 6.0 / 3, 1e-9);
      // (p - 1)(t_F + t_B - t_W) if the three are equal.
      EXPECT_DOUBLE_EQ(longest_idle(make_schedule("zb_h1", p, m), StageTimes{}), p - 1.0);
    }
  }
}

TEST(Schedule, OfAVIdlesLeast) {
  const double of_1f1b = longest_idle(make_schedule("1f1b", 4, 8), StageTimes{});
  const double of_v = longest_idle(make_schedule("zb_v", 4, 8), StageTimes{});
  EXPECT_LE(of_v, 0.35 * of_1f1b) << of_v << " of " << of_1f1b;
  // Within the memory of 1F1B: two half stages per micro-batch.
  for (const int peak : peak_activations(make_schedule("zb_v", 4, 8))) EXPECT_LE(peak, 2 * 4);
}

TEST(Schedule, SaysWhatIsWrongWithIt) {
  Schedule schedule = make_schedule("1f1b", 2, 2);
  std::vector<Action>& last = schedule.actions[1];
  const auto without = [&](Action action) {
    Schedule other = schedule;
    for (auto& rank : other.actions) std::erase(rank, action);
    return join(faults_of(other), "; ");
  };
  expect_facts(without({ActionKind::send_activation, 0, 1}), {"s0.1", "F1.1"});
  expect_facts(without({ActionKind::forward, 1, 0}), {"F1.0", "B1.0"});
  last.push_back({ActionKind::backward, 1, 1});
  expect_facts(join(faults_of(schedule), "; "), {"B1.1", "1"});
}

TEST(Schedule, IsPrintedAndDrawn) {
  const Schedule schedule = make_schedule("1f1b", 2, 2);
  EXPECT_EQ(to_text(schedule),
            "rank 0: F0.0 s0.0 R0.0 F0.1 s0.1 R0.1 B0.0 B0.1\n"
            "rank 1: r1.0 F1.0 r1.1 B1.0 S1.0 F1.1 B1.1 S1.1\n");
  EXPECT_EQ(draw(schedule, simulate(schedule, StageTimes{1, 1, 1, 0})),
            "rank 0  0-- 1-- .   .   b0----- .   b1----- \n"
            "rank 1  .   0-- b0----- 1-- b1----- .   .   \n");
  const std::string picture = to_svg(schedule, simulate(schedule, StageTimes{}));
  for (const char* part :
       {"<title>1f1b", "prefers-color-scheme: dark", "class=\"page\"", "viewBox=\"0 0 900 "})
    EXPECT_NE(picture.find(part), std::string::npos) << part;
}

TEST(Schedule, RefusesWhatCannotBe) {
  expect_facts(message_of<UsageError>([] { make_schedule("2f2b", 2, 2); }), {"'2f2b'", "zb_v"});
  expect_facts(message_of<UsageError>([] { make_schedule("1f1b", 0, 3); }), {"0", "3"});
  expect_facts(message_of<UsageError>([] { make_schedule("interleaved", 2, 2, 1); }), {"1", "2"});
  expect_facts(
      message_of<UsageError>([] { simulate(make_schedule("1f1b", 2, 2), std::vector<StageTimes>(3)); }),
      {"2", "3"});
}

}  // namespace
}  // namespace rondo::schedule_test
