#include "rondo/pipeline/stage_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::stage_cuts_test {
namespace {

using pipeline::balanced_cuts;
using pipeline::cuts_at;
using pipeline::UnitCost;
using ::rondo::testing::expect_facts;
using ::rondo::testing::message_of;

double slowest(const std::vector<UnitCost>& units, std::vector<int> first) {
  first.push_back(static_cast<int>(units.size()));
  double worst = 0;
  for (std::size_t stage = 0; stage + 1 < first.size(); ++stage) {
    double seconds = 0;
    for (int unit = first[stage]; unit < first[stage + 1]; ++unit)
      seconds += units[static_cast<std::size_t>(unit)].seconds;
    worst = std::max(worst, seconds);
  }
  return worst;
}

TEST(StageCuts, AreTheBestOfAll) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<UnitCost> units(static_cast<std::size_t>(4 + random() % 6));
    for (UnitCost& unit : units) unit.seconds = static_cast<double>(1 + random() % 20);
    const int stages = static_cast<int>(1 + random() % 4);
    double best = std::numeric_limits<double>::infinity();
    const std::function<void(std::vector<int>)> every = [&](std::vector<int> first) {
      if (static_cast<int>(first.size()) == stages) {
        best = std::min(best, slowest(units, first));
        return;
      }
      for (int next = first.back() + 1; next < static_cast<int>(units.size()); ++next) {
        std::vector<int> longer = first;
        longer.push_back(next);
        every(longer);
      }
    };
    every({0});
    EXPECT_EQ(slowest(units, balanced_cuts(units, stages)), best);
  }
}

TEST(StageCuts, KeepEachStageWithinTheLimit) {
  std::vector<UnitCost> units(4, {.seconds = 1, .state_bytes = 10, .activation_bytes = 5});
  units[0].seconds = 3;
  EXPECT_EQ(balanced_cuts(units, 2), (std::vector<int>{0, 1}));
  // The first stage holds two micro-batches, the second one: 3 units there are 45 bytes.
  EXPECT_EQ(balanced_cuts(units, 2, {2, 1}, 40), (std::vector<int>{0, 2}));
  expect_facts(message_of<UsageError>([&] { balanced_cuts(units, 2, {2, 1}, 29); }), {"4", "2", "29"});
  expect_facts(message_of<UsageError>([&] { balanced_cuts(units, 5); }), {"4", "5"});
}

TEST(StageCuts, ByHandNameUnits) {
  const std::vector<std::string> units = {"embeddings", "h.0", "h.1", "head"};
  EXPECT_EQ(cuts_at(units, {"h.1"}, 2), (std::vector<int>{0, 2}));
  EXPECT_EQ(cuts_at(units, {"h.0", "head"}, 3), (std::vector<int>{0, 1, 3}));
  expect_facts(message_of<UsageError>([&] { cuts_at(units, {"h.2"}, 2); }), {"'h.2'", "h.1"});
  expect_facts(message_of<UsageError>([&] { cuts_at(units, {"h.1"}, 3); }), {"2", "3"});
  expect_facts(message_of<UsageError>([&] { cuts_at(units, {"h.1", "h.0"}, 3); }), {"'h.0'"});
  expect_facts(message_of<UsageError>([&] { cuts_at(units, {"embeddings"}, 2); }), {"'embeddings'"});
}

}  // namespace
}  // namespace rondo::stage_cuts_test
