#include "rondo/parallel/schedule/leader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "rondo/base/error.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "tests/parallel/ranks.h"

namespace rondo::leader_test {
namespace {

TEST(Leader, AnIdleOneIsHeardToBeAlive) {
  // On a busy machine heartbeats may be late by most of this time.
  constexpr auto patience = std::chrono::seconds(12);
  testing::run_ranks("gloo", 2, [&](const Group& group) {
    Leader leader(group, patience);
    if (leader.leads()) {
      // Simulates a long evaluation: nothing to start for longer than the others' patience.
      std::promise<void> never;
      never.get_future().wait_for(patience * 5 / 4);
      leader.publish(5);
      leader.stop();
      return;
    }
    EXPECT_EQ(leader.next(), std::optional<std::uint64_t>(5));
    EXPECT_EQ(leader.next(), std::nullopt);
  });
}

TEST(Leader, ASilentOneIsNamed) {
  testing::run_ranks("gloo", 2, [&](const Group& group) {
    static std::promise<void> given_up;
    if (group.rank() == 0) {
      // Simulates a hanging host: the connection is open, but no message arrives.
      given_up.get_future().wait_for(std::chrono::seconds(60));
      return;
    }
    Leader leader(group, std::chrono::milliseconds(300));
    try {
      leader.next();
      ADD_FAILURE() << "heard something";
    } catch (const TimeoutError& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{0});
    }
    given_up.set_value();
  });
}

TEST(Leader, IsNotBlockedBySilentFollower) {
  testing::run_ranks("gloo", 2, [&](const Group& group) {
    static std::promise<void> ended;
    if (group.rank() == 1) {
      // Simulates a hanging rank: the connection is open, but nothing is received until the leader has ended.
      ended.get_future().wait();
      return;
    }
    {
      CommunicationQueue queue(make_policy({"fifo"}), Bytes{},
                               std::make_unique<Leader>(group, std::chrono::minutes(1)));
      queue.submit({.collective = "all_reduce", .unit = "unit", .start = [] { return BucketFuture(); }});
    }
    ended.set_value();
  });
}

}  // namespace
}  // namespace rondo::leader_test
