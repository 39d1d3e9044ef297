#include "rondo/parallel/schedule/block_scheduler.h"

#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <mutex>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "tests/parallel/ranks.h"

namespace rondo {
namespace {

// A message that the test ends.
class Delivery final : public c10d::Work {
 public:
  void arrive() { finish(); }
};

CommunicationBlock block(std::string unit, std::int64_t priority, std::vector<std::string>& started,
                         c10::intrusive_ptr<c10d::Work> work, Bytes bytes = Bytes{100}) {
  return {"all_gather", unit, 0, bytes, priority, {}, [unit, &started, work] {
            started.push_back(unit);
            return work;
          }};
}

c10::intrusive_ptr<Delivery> arrived() {
  auto work = c10::make_intrusive<Delivery>();
  work->arrive();
  return work;
}

TEST(BlockScheduler, WithoutALeaderEverythingStartsInItsOrder) {
  std::vector<std::string> started;
  BlockScheduler scheduler(make_policy({"fifo"}), Bytes{1}, nullptr);
  scheduler.submit(block("a", 5, started, arrived()));
  const auto last = scheduler.submit(block("b", 1, started, arrived()));
  scheduler.wait(last);
  EXPECT_EQ(started, (std::vector<std::string>{"a", "b"}));
}

CommunicationBlock planned(std::string unit, std::int64_t slot, std::int64_t place,
                           std::vector<std::string>& started) {
  CommunicationBlock result = block(std::move(unit), place, started, arrived());
  result.slot = slot;
  return result;
}

TEST(BlockScheduler, APlanKeepsBlocksBackUntilTheirSlot) {
  std::vector<std::string> started;
  BlockScheduler scheduler(make_policy({"plan"}), {}, nullptr);
  scheduler.submit(planned("third", 2, 2, started));
  scheduler.submit(planned("second", 2, 1, started));
  scheduler.submit(planned("first", 1, 0, started));
  EXPECT_TRUE(started.empty());
  scheduler.reach(1);
  EXPECT_EQ(started, (std::vector<std::string>{"first"}));
  scheduler.reach(2);
  EXPECT_EQ(started, (std::vector<std::string>{"first", "second", "third"}));
}

TEST(BlockScheduler, WhatSomebodyWaitsForGoesBeforeItsSlot) {
  std::vector<std::string> started;
  BlockScheduler scheduler(make_policy({"plan"}), {}, nullptr);
  const auto before = scheduler.submit(planned("reduce", 9, 0, started));
  CommunicationBlock behind = planned("gather", 9, 1, started);
  behind.after = before;
  const auto ticket = scheduler.submit(std::move(behind));
  scheduler.submit(planned("other", 9, 2, started));
  EXPECT_FALSE(scheduler.finished(ticket));
  scheduler.wait(ticket);
  EXPECT_EQ(started, (std::vector<std::string>{"reduce", "gather"}));
  EXPECT_TRUE(scheduler.finished(ticket));
}

TEST(BlockScheduler, WaitingForOneBlockDoesNotWaitForAnother) {
  std::vector<std::string> started;
  BlockScheduler scheduler(make_policy({"fifo"}), {}, nullptr);
  const auto never = c10::make_intrusive<Delivery>();
  scheduler.submit(block("never", 0, started, never));
  scheduler.wait(scheduler.submit(block("now", 0, started, arrived())));
  never->arrive();
}

TEST(BlockScheduler, RandomIsTheSameOrderForASeedAndAnotherForAnother) {
  const auto order = [](std::uint64_t seed) {
    std::vector<std::string> started;
    BlockScheduler scheduler(make_policy({"random", seed}), {}, nullptr);
    std::vector<BlockScheduler::Ticket> tickets;
    for (int i = 0; i < 30; ++i)
      tickets.push_back(scheduler.submit(block(std::to_string(i), i, started, arrived())));
    for (const auto ticket : tickets) scheduler.wait(ticket);
    EXPECT_EQ(started.size(), 30U);
    return started;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(BlockScheduler, ABlockThatCannotStartIsNamed) {
  BlockScheduler scheduler(make_policy({"fifo"}), {}, nullptr);
  const std::string message = testing::message_of([&] {
    scheduler.submit({"reduce_scatter", "h.3", 0, Bytes{1}, 0, {}, []() -> c10::intrusive_ptr<c10d::Work> {
                        throw std::runtime_error("no cable");
                      }});
  });
  EXPECT_EQ(message, "reduce_scatter of unit 'h.3' could not be started: no cable");
}

// What the leader's rank starts, all start, and what is needed first overtakes.
TEST(BlockScheduler, WithALeaderRanksStartInOneOrderAndPriorityOvertakes) {
  std::mutex mutex;
  std::vector<std::vector<std::string>> orders;
  testing::run_ranks("gloo", 3, [&](const Group& group) {
    std::vector<std::string> started;
    {
      BlockScheduler scheduler(make_policy({"priority"}), Bytes{150}, std::make_unique<Leader>(group));
      std::vector<c10::intrusive_ptr<Delivery>> works;
      std::vector<BlockScheduler::Ticket> tickets;
      for (int i = 0; i < 20; ++i) {
        works.push_back(c10::make_intrusive<Delivery>());
        tickets.push_back(scheduler.submit(block(std::to_string(i), -i, started, works.back())));
      }
      for (const auto& work : works) work->arrive();
      for (const auto ticket : tickets) scheduler.wait(ticket);
    }
    const std::lock_guard lock(mutex);
    orders.push_back(started);
  });
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_EQ(orders[0], orders[2]);
  ASSERT_EQ(orders[0].size(), 20U);
  // There is room for two; the last is the most urgent of those that wait.
  const auto place = std::find(orders[0].begin(), orders[0].end(), "19") - orders[0].begin();
  EXPECT_LT(place, 19);
}

TEST(BlockScheduler, ABlockThatComesAfterAnotherWaitsForIt) {
  testing::run_ranks("gloo", 2, [&](const Group& group) {
    std::vector<std::string> started;
    BlockScheduler scheduler(make_policy({"priority"}), {}, std::make_unique<Leader>(group));
    const auto first = c10::make_intrusive<Delivery>();
    const auto ticket = scheduler.submit(block("first", 1, started, first));
    CommunicationBlock next = block("next", 0, started, arrived());
    next.after = ticket;
    const auto second = scheduler.submit(std::move(next));
    first->arrive();
    scheduler.wait(second);
    EXPECT_EQ(started, (std::vector<std::string>{"first", "next"}));
  });
}

// A message whose engine tells when it ends, which may be long before somebody asks.
class ToldDelivery final : public c10d::Work {
 public:
  ToldDelivery() : future_(c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get())) {}
  void arrive() {
    finish();
    future_->markCompleted();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

TEST(BlockScheduler, RecordsTellTheWayOfEachBlock) {
  std::vector<std::string> started;
  BlockScheduler scheduler(make_policy({"fifo"}), {}, nullptr);
  const auto told = c10::make_intrusive<ToldDelivery>();
  const auto first = scheduler.submit(block("told", 0, started, told));
  told->arrive();
  const std::int64_t arrived_ns = monotonic_ns();
  const auto second = scheduler.submit(block("seen", 0, started, arrived()));
  EXPECT_TRUE(scheduler.take_records().empty()) << "nobody has seen them finished";
  scheduler.wait(first);
  scheduler.wait(second);
  const std::vector<BlockRecord> records = scheduler.take_records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_LE(records[0].finished_ns, arrived_ns);
  EXPECT_GT(records[1].finished_ns, arrived_ns);
  for (const BlockRecord& record : records) {
    EXPECT_GT(record.queued_ns, 0);
    EXPECT_LE(record.queued_ns, record.started_ns);
    EXPECT_LE(record.started_ns, record.finished_ns);
    EXPECT_GE(record.waited_ns, arrived_ns);
    EXPECT_GE(record.exposed_ns, 0);
    EXPECT_EQ(record.bytes, Bytes{100});
  }
  EXPECT_TRUE(scheduler.take_records().empty());
}

TEST(Policies, UnknownNamesAreErrors) {
  EXPECT_THROW(make_policy({"lifo"}), UsageError);
  for (const std::string& name : policy_names()) EXPECT_EQ(make_policy({name})->name(), name);
}

}  // namespace
}  // namespace rondo
