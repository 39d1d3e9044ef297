#include "rondo/train/agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/backend/ranks.h"
#include "tests/train/digits.h"

namespace rondo::stop_agreement_test {
namespace {

using testing::run_ranks;
using testing::strategy_for;

// Duration of a round, which stands for a batch.
constexpr auto kWork = std::chrono::milliseconds(60);

TEST(StopAgreement, RequestOfOneRankStopsAllSoon) {
  for (const int ranks : {1, 3}) {
    std::vector<std::int64_t> ended(static_cast<std::size_t>(ranks), -1);
    run_ranks(ranks, "native", [&](Context& context) {
      const auto strategy = strategy_for(context);
      std::int64_t round = 0;
      const std::function<bool()> requested = [&] { return context.rank() == ranks - 1 && round >= 3; };
      StopAgreement stop(*strategy, requested);
      for (; round < 200; ++round) {
        std::this_thread::sleep_for(kWork);
        if (stop.after(round)) break;
      }
      ended[static_cast<std::size_t>(context.rank())] = round;
    });
    for (const std::int64_t round : ended) {
      EXPECT_EQ(round, ended.front());
      EXPECT_GE(round, 3);
      EXPECT_LE(round, 10);  // 0.25 s later, plus the current round
    }
  }
}

TEST(StopAgreement, WithoutAnybodyToAskNothingIsSent) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = strategy_for(context);
    const std::function<bool()> nobody;
    StopAgreement stop(*strategy, nobody);
    // A collective that the other rank does not join would block until the deadline.
    if (context.rank() == 0) {
      EXPECT_FALSE(stop.after(0));
      EXPECT_FALSE(stop_on_any(*strategy, nobody));
    }
  });
}

}  // namespace
}  // namespace rondo::stop_agreement_test
