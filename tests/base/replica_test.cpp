#include "rondo/base/replica.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "rondo/base/log.h"

namespace rondo::replica_test {
namespace {

TEST(Replica, NumbersAreTheLowestThatAreFree) {
  Replica first;
  {
    const Replica second;
    EXPECT_EQ(first.number(), 0);
    EXPECT_EQ(second.number(), 1);
    second.enter();
    EXPECT_EQ(this_replica(), 1);
    std::thread([] { EXPECT_EQ(this_replica(), 0) << "a thread that says nothing"; }).join();
    replica_thread([] { EXPECT_EQ(this_replica(), 1); }).join();
  }
  EXPECT_EQ(this_replica(), 0) << "its end lets its thread go";
  EXPECT_EQ(Replica().number(), 1);
}

TEST(Replica, SeveralOfARankKnowThatRank) {
  const Replica other;
  const Replica rank;
  rank.enter();
  EXPECT_EQ(replica_of_this_rank(), rank.number());
  std::thread([number = rank.number()] {
    const Replica second(number);
    second.enter();
    EXPECT_EQ(this_replica(), second.number());
    EXPECT_NE(this_replica(), number);
    EXPECT_EQ(replica_of_this_rank(), number);
    replica_thread([number] { EXPECT_EQ(replica_of_this_rank(), number); }).join();
  }).join();
  std::thread([] { EXPECT_EQ(replica_of_this_rank(), 0) << "a thread that says nothing"; }).join();
}

TEST(Replica, ThreadsBeginWithTheSetupOfTheirStarter) {
  std::vector<int> calls;
  set_thread_setup([&] { calls.push_back(this_replica()); });
  const Replica other, rank;
  rank.enter();
  replica_thread([&] {
    EXPECT_EQ(calls, std::vector{rank.number()}) << "before the body";
    replica_thread([] {}).join();
  }).join();
  EXPECT_EQ(calls.size(), 2) << "a thread of a thread, too";
  std::thread([&] { replica_thread([] {}).join(); }).join();
  EXPECT_EQ(calls.size(), 2) << "a thread that says nothing";
  set_thread_setup({});
  replica_thread([] {}).join();
  EXPECT_EQ(calls.size(), 2);
}

TEST(Replica, LogLinesHaveThePrefixOfTheirThread) {
  ::testing::internal::CaptureStderr();
  std::barrier both(2);
  const auto rank = [&](const std::string& name) {
    const Replica replica;
    replica.enter();
    log::set_prefix(name);
    both.arrive_and_wait();
    log::warning("from ", name, "%");
    replica_thread([&] { log::warning("helper of ", name); }).join();
    both.arrive_and_wait();
    log::set_prefix("");
  };
  std::thread other(rank, "rank 7 of 100 %v");
  rank("rank 3");
  other.join();
  log::warning("from nobody");
  const std::string lines = ::testing::internal::GetCapturedStderr();
  for (const std::string name : {"rank 3", "rank 7 of 100 %v"}) {
    EXPECT_NE(lines.find("[" + name + "] from " + name + "%\n"), std::string::npos) << lines;
    EXPECT_NE(lines.find("[" + name + "] helper of " + name + "\n"), std::string::npos) << lines;
  }
  EXPECT_NE(lines.find("W from nobody\n"), std::string::npos) << lines;
}

}  // namespace
}  // namespace rondo::replica_test
