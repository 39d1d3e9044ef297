#include "rondo/parallel/schedule/communication_queue.h"

#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include "rondo/backend/collectives.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/parallel/schedule/communication_options.h"
#include "tests/parallel/ranks.h"

namespace rondo::communication_queue_test {
namespace {

// A message that the test completes; it reports when a call waits for it.
class Delivery final : public c10d::Work {
 public:
  void arrive() { finish(); }
  bool wait(std::chrono::milliseconds limit) override {
    if (!is_awaited_.exchange(true)) awaited_.set_value();
    return c10d::Work::wait(limit);
  }
  std::future<void> awaited() { return awaited_.get_future(); }

 private:
  std::atomic<bool> is_awaited_ = false;
  std::promise<void> awaited_;
};

CommunicationSegment segment(std::string unit, std::int64_t priority, std::vector<std::string>& started,
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

TEST(CommunicationQueue, WithoutALeaderEverythingStartsInItsOrder) {
  std::vector<std::string> started;
  CommunicationQueue queue(make_policy({"fifo"}), Bytes{1}, nullptr);
  queue.submit(segment("a", 5, started, arrived()));
  const auto last = queue.submit(segment("b", 1, started, arrived()));
  queue.wait(last);
  EXPECT_EQ(started, (std::vector<std::string>{"a", "b"}));
}

// Attributes the memory of messages because Gloo frees its copies only after the waiting rank has continued.
TEST(CommunicationQueue, ChargesEngineBuffersToCommunication) {
  track_cpu_allocations();
  const auto of = [](MemoryCategory category) {
    return bytes_of(replica_memory_tracker().usage().of_unit("sent"), category);
  };
  std::vector<at::Tensor> taken;
  CommunicationQueue queue(make_policy({"fifo"}), {}, nullptr);
  const MemoryScope backward(MemoryCategory::temporaries, "sent");
  const auto ticket = queue.submit({.collective = "all_reduce", .unit = "sent", .start = [&] {
                                      taken.push_back(at::empty({1000}));
                                      return BucketFuture(arrived()).then_send([&](const at::Tensor&) {
                                        taken.push_back(at::empty({500}));
                                        return BucketFuture(arrived());
                                      });
                                    }});
  queue.wait(ticket);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(of(MemoryCategory::communication), 6000U);
  EXPECT_EQ(of(MemoryCategory::temporaries), 0U);
}

CommunicationSegment planned(std::string unit, std::int64_t slot, std::int64_t place,
                             std::vector<std::string>& started) {
  CommunicationSegment result = segment(std::move(unit), place, started, arrived());
  result.slot = slot;
  return result;
}

TEST(CommunicationQueue, APlanKeepsSegmentsBackUntilTheirSlot) {
  std::vector<std::string> started;
  CommunicationQueue queue(make_policy({"plan"}), {}, nullptr);
  queue.submit(planned("third", 2, 2, started));
  queue.submit(planned("second", 2, 1, started));
  queue.submit(planned("first", 1, 0, started));
  EXPECT_TRUE(started.empty());
  queue.reach(1);
  EXPECT_EQ(started, (std::vector<std::string>{"first"}));
  queue.reach(2);
  EXPECT_EQ(started, (std::vector<std::string>{"first", "second", "third"}));
}

TEST(CommunicationQueue, WhatSomebodyWaitsForGoesBeforeItsSlot) {
  std::vector<std::string> started;
  CommunicationQueue queue(make_policy({"plan"}), {}, nullptr);
  // Has lower priority than the segment after it.
  const auto before = queue.submit(planned("reduce", 9, 1, started));
  CommunicationSegment behind = planned("gather", 9, 0, started);
  behind.after = before;
  const auto ticket = queue.submit(std::move(behind));
  queue.submit(planned("other", 9, 2, started));
  EXPECT_FALSE(queue.finished(ticket));
  queue.wait(ticket);
  EXPECT_EQ(started, (std::vector<std::string>{"reduce", "gather"}));
  EXPECT_TRUE(queue.finished(ticket));
}

TEST(CommunicationQueue, WaitsForOneSegmentOnly) {
  std::vector<std::string> started;
  CommunicationQueue queue(make_policy({"fifo"}), {}, nullptr);
  const auto never = c10::make_intrusive<Delivery>();
  queue.submit(segment("never", 0, started, never));
  queue.wait(queue.submit(segment("now", 0, started, arrived())));
  never->arrive();
}

TEST(CommunicationQueue, RandomOrderDependsOnTheSeed) {
  const auto order = [](std::uint64_t seed) {
    std::vector<std::string> started;
    CommunicationQueue queue(make_policy({"random", seed}), {}, nullptr);
    std::vector<CommunicationQueue::Ticket> tickets;
    for (int i = 0; i < 30; ++i)
      tickets.push_back(queue.submit(segment(std::to_string(i), i, started, arrived())));
    for (const auto ticket : tickets) queue.wait(ticket);
    EXPECT_EQ(started.size(), 30U);
    return started;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

// Starts segments of three messages each. Message `early` completes before anything polls, as may happen on
// one rank only.
std::vector<std::string> starts_of_rounds(const std::string& early) {
  std::vector<std::string> started;
  std::map<std::string, c10::intrusive_ptr<Delivery>> works;
  bool all_arrive = false;
  const auto send = [&](const std::string& name) -> BucketFuture::Work {
    started.push_back(name);
    works[name] = c10::make_intrusive<Delivery>();
    if (all_arrive || name == early) works[name]->arrive();
    return works[name];
  };
  CommunicationQueue queue(make_policy({"fifo"}), {}, nullptr);
  std::vector<CommunicationQueue::Ticket> tickets;
  for (const std::string name : {"a", "b", "c"}) {
    tickets.push_back(
        queue.submit({.collective = "all_reduce", .start = [&, name] {
                        return BucketFuture(send(name + "1"))
                            .then_send([&, name](const at::Tensor&) { return send(name + "2"); })
                            .then_send([&, name](const at::Tensor&) { return send(name + "3"); });
                      }}));
    queue.poll();
  }
  all_arrive = true;
  for (const auto& [name, work] : works) {
    if (!work->isCompleted()) work->arrive();
  }
  queue.start_all();
  for (const auto ticket : tickets) queue.wait(ticket);
  return started;
}

TEST(CommunicationQueue, RoundsAlternateInOneOrder) {
  const std::vector<std::string> order = {"a1", "b1", "a2", "c1", "a3", "b2", "b3", "c2", "c3"};
  for (const std::string early : {"none", "a1", "a2", "b1", "c1"})
    EXPECT_EQ(starts_of_rounds(early), order) << early;
}

TEST(CommunicationQueue, ASegmentThatCannotStartIsNamed) {
  CommunicationQueue queue(make_policy({"fifo"}), {}, nullptr);
  const std::string message = testing::message_of([&] {
    queue.submit({"reduce_scatter", "h.3", 0, Bytes{1}, 0, {}, []() -> c10::intrusive_ptr<c10d::Work> {
                    throw std::runtime_error("no cable");
                  }});
  });
  testing::expect_facts(message, {"reduce_scatter", "'h.3'", "no cable"});
}

// All ranks start the segments that the leader starts, and urgent segments overtake others.
TEST(CommunicationQueue, LeaderFixesOneOrderWithPriorities) {
  std::mutex mutex;
  std::vector<std::vector<std::string>> orders;
  testing::run_ranks("gloo", 3, [&](const Group& group) {
    std::vector<std::string> started;
    {
      CommunicationQueue queue(make_policy({"priority"}), Bytes{150},
                               std::make_unique<Leader>(group, std::chrono::minutes(1)));
      std::vector<c10::intrusive_ptr<Delivery>> works;
      std::vector<CommunicationQueue::Ticket> tickets;
      for (int i = 0; i < 20; ++i) {
        works.push_back(c10::make_intrusive<Delivery>());
        tickets.push_back(queue.submit(segment(std::to_string(i), -i, started, works.back())));
      }
      for (const auto& work : works) work->arrive();
      for (const auto ticket : tickets) queue.wait(ticket);
    }
    const std::lock_guard lock(mutex);
    orders.push_back(started);
  });
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_EQ(orders[0], orders[2]);
  ASSERT_EQ(orders[0].size(), 20U);
  // There is room for two segments; the last one is the most urgent of those that wait.
  const auto place = std::find(orders[0].begin(), orders[0].end(), "19") - orders[0].begin();
  EXPECT_LT(place, 19);
}

// The leader's thread has failed or its rank has left; the other ranks see an orderly end.
TEST(CommunicationQueue, NamesSegmentThatTheLeaderNeverOrders) {
  testing::run_ranks("gloo", 2, [&](const Group& group) {
    std::vector<std::string> started;
    std::optional<CommunicationQueue> queue;
    queue.emplace(make_policy({"priority"}), Bytes{},
                  std::make_unique<Leader>(group, std::chrono::minutes(1)));
    const auto both = queue->submit(segment("h.1", 0, started, arrived()));
    queue->wait(both);
    if (group.rank() == 0) {
      queue.reset();
      return;
    }
    const auto alone = queue->submit(segment("h.2", 0, started, arrived()));
    try {
      queue->wait(alone);
      ADD_FAILURE() << "nobody ordered it";
    } catch (const CommunicationError& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{0});
      testing::expect_facts(error.what(), {"all_gather", "'h.2'", "rank 0"});
    }
    EXPECT_THROW(queue->finished(alone), CommunicationError);
    EXPECT_EQ(started, std::vector<std::string>{"h.1"});
  });
}

// A segment fills the window until both others are queued, so that the policy chooses between them. The more
// urgent one starts first, unless it must come after the other, which must then be finished.
TEST(CommunicationQueue, DependentSegmentsWaitAndOthersGoByUrgency) {
  for (const bool comes_after : {true, false}) {
    testing::run_ranks("gloo", 2, [&](const Group& group) {
      std::vector<std::string> started;
      CommunicationQueue queue(make_policy({"priority"}), Bytes{100},
                               std::make_unique<Leader>(group, std::chrono::minutes(1)));
      const auto busy = c10::make_intrusive<Delivery>();
      const auto first = c10::make_intrusive<Delivery>();
      queue.submit(segment("busy", 0, started, busy));
      const auto ticket = queue.submit(segment("less urgent", 2, started, first, Bytes{1}));
      CommunicationSegment next = segment("urgent", 1, started, arrived(), Bytes{1});
      if (comes_after) next.after = ticket;
      const auto last = queue.submit(std::move(next));
      busy->arrive();
      std::vector<std::string> expected{"busy", "urgent", "less urgent"};
      if (comes_after) {
        std::swap(expected[1], expected[2]);
        // The thread that starts segments waits for it.
        ASSERT_EQ(first->awaited().wait_for(std::chrono::seconds(60)), std::future_status::ready);
        EXPECT_EQ(started, (std::vector<std::string>{"busy", "less urgent"}));
      }
      first->arrive();
      queue.wait(last);
      queue.wait(ticket);
      EXPECT_EQ(started, expected) << "rank " << group.rank();
    });
  }
}

// A message whose engine reports its end, possibly long before it is polled.
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

TEST(CommunicationQueue, SpansTellTheWayOfEachSegment) {
  std::vector<std::string> started;
  CommunicationQueue queue(make_policy({"fifo"}), {}, nullptr);
  const auto told = c10::make_intrusive<ToldDelivery>();
  const auto first = queue.submit(segment("told", 0, started, told));
  told->arrive();
  const std::int64_t arrived_ns = monotonic_ns();
  const auto second = queue.submit(segment("seen", 0, started, arrived()));
  EXPECT_TRUE(queue.take_spans().empty()) << "nobody has seen them finished";
  queue.wait(first);
  queue.wait(second);
  const std::vector<TraceSpan> spans = queue.take_spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_LE(spans[0].end_ns, arrived_ns);
  EXPECT_GT(spans[1].end_ns, arrived_ns);
  for (const TraceSpan& span : spans) {
    EXPECT_GT(span.queued_ns, 0);
    EXPECT_LE(span.queued_ns, span.begin_ns);
    EXPECT_LE(span.begin_ns, span.end_ns);
    EXPECT_GE(span.waited_ns, arrived_ns);
    EXPECT_GE(span.exposed_ns, 0);
    EXPECT_EQ(span.bytes, 100U);
  }
  EXPECT_TRUE(queue.take_spans().empty());
}

TEST(Policies, UnknownNamesAreErrors) {
  EXPECT_THROW(make_policy({"lifo"}), UsageError);
  for (const std::string& name : policy_names()) EXPECT_EQ(make_policy({name})->name(), name);
}

}  // namespace
}  // namespace rondo::communication_queue_test
