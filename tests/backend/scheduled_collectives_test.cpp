// Collectives run by a schedule (RONDO_ALGORITHM) keep c10d's contract: a call with asyncOp does not wait, a
// started operation ends even if its rank is elsewhere, and the operation owns its memory until then.
#include "rondo/backend/native/scheduled_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "tests/backend/ranks.h"

namespace rondo::scheduled_collectives_test {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;
using Future = c10::intrusive_ptr<c10::ivalue::Future>;
using Tensors = std::vector<at::Tensor>;

// Timeout that only a failure reaches.
constexpr auto kPatience = std::chrono::seconds(60);

// Runs two ranks whose collectives use the ring schedule if it supports them.
void run_scheduled(const std::function<void(Context&)>& body) {
  // Unset after an exception too, for later tests in this process.
  const struct ByHand {
    ByHand() { setenv("RONDO_ALGORITHM", "ring", 1); }
    ~ByHand() { unsetenv("RONDO_ALGORITHM"); }
  } by_hand;
  testing::run_ranks(2, "native", body, kPatience);
}

struct Started {
  Work work;
  at::Tensor result;
  float expected;  // value of every element
};

using Start = std::function<Started(c10d::Backend&, std::int64_t)>;
const std::map<std::string, Start>& starts() {
  static const std::map<std::string, Start> all{
      {"all_reduce",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         Tensors t{at::full({n}, b.getRank() + 1.0F)};
         return {b.allreduce(t), t[0], 3};
       }},
      {"strided",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         Tensors t{at::full({n, 2}, b.getRank() + 1.0F).t()};
         return {b.allreduce(t), t[0], 3};
       }},
      {"several",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         Tensors t{at::ones({n}), at::ones({n})};
         return {b.allreduce(t), t[1], 4};
       }},
      {"coalesced",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         Tensors t{at::ones({n}), at::ones({n})};
         return {b.allreduce_coalesced(t), t[1], 2};
       }},
      {"broadcast",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         Tensors t{at::full({n}, b.getRank() + 1.0F)};
         c10d::BroadcastOptions options;
         options.rootRank = 1;
         return {b.broadcast(t, options), t[0], 2};
       }},
      {"reduce",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         Tensors t{at::full({n}, b.getRank() + 1.0F)};
         return {b.reduce(t), t[0], b.getRank() == 0 ? 3.0F : 2.0F};
       }},
      {"all_gather",
       [](c10d::Backend& b, std::int64_t n) -> Started {
         std::vector<Tensors> out{{at::zeros({n}), at::zeros({n})}};
         Tensors in{at::full({n}, b.getRank() + 1.0F)};
         return {b.allgather(out, in), out[0][1], 2};
       }},
      {"reduce_scatter", [](c10d::Backend& b, std::int64_t n) -> Started {
         at::Tensor out = at::zeros({n});
         at::Tensor in = at::full({2 * n}, b.getRank() + 1.0F);
         return {b._reduce_scatter_base(out, in), out, 3};
       }}};
  return all;
}

bool is_all(const at::Tensor& tensor, float value) { return tensor.eq(value).all().item<bool>(); }

// Rank 0 makes no call between its start and the moment at which rank 1 has its result.
TEST(ScheduledCollectives, EndWithoutFurtherCallsOfTheirRank) {
  for (const auto& [name, start] : starts()) {
    for (const std::int64_t length : {3, 300'000}) {
      std::promise<void> rank_1_has_its_result;
      run_scheduled([&, &name = name, &start = start](Context& context) {
        Started started = start(*context.world().backend(), length);
        if (context.rank() == 0) {
          auto seen = rank_1_has_its_result.get_future();
          ASSERT_EQ(seen.wait_for(kPatience), std::future_status::ready) << name;
        }
        EXPECT_TRUE(started.work->wait());
        if (context.rank() == 1) rank_1_has_its_result.set_value();
        EXPECT_TRUE(started.work->isCompleted() && started.work->isSuccess());
        EXPECT_TRUE(is_all(started.result, started.expected)) << name << " of " << length;
      });
    }
  }
}

TEST(ScheduledCollectives, FuturesOfTwoGroupsChainInAnyOrder) {
  run_scheduled([](Context& context) {
    std::vector<Group> groups{context.new_group({0, 1}), context.new_group({0, 1})};
    if (context.rank() == 1) std::swap(groups[0], groups[1]);
    // The callback of one group's collective starts one of the other group: after the first of that group, so
    // that both are in flight before there is a callback.
    std::vector<Future> first;
    for (const Group& group : groups) {
      Tensors tensors{at::ones({100'000})};
      first.push_back(group.backend()->allreduce(tensors)->getFuture());
    }
    std::vector<std::promise<Future>> second(2);
    for (std::size_t i = 0; i < 2; ++i) {
      first[i]->addCallback([&, i](c10::ivalue::Future& done) {
        EXPECT_FALSE(done.hasError());
        Tensors more{at::ones({10})};
        second[i].set_value(groups[1 - i].backend()->allreduce(more)->getFuture());
      });
    }
    for (auto& promise : second) {
      auto begun = promise.get_future();
      ASSERT_EQ(begun.wait_for(kPatience), std::future_status::ready);
      const Future future = begun.get();
      future->wait();
      EXPECT_TRUE(is_all(future->value().toTensorVector().front(), 2));
    }
  });
}

// In c10d each rank chooses whether it waits.
TEST(ScheduledCollectives, SomeRanksMayWaitInTheCall) {
  run_scheduled([](Context& context) {
    for (int round = 0; round < 20; ++round) {
      std::vector<Started> under_way;
      for (int i = 0; i < 3; ++i) {
        c10d::AllreduceOptions options;
        options.asyncOp = (round + i + context.rank()) % 2 == 0;
        Tensors tensors{at::ones({1000})};
        Work work = context.world().backend()->allreduce(tensors, options);
        EXPECT_TRUE(options.asyncOp || work->isCompleted());
        under_way.push_back({work, tensors[0], 2});
      }
      at::Tensor now = at::ones({7});
      all_reduce(now, context.world());
      EXPECT_TRUE(is_all(now, 2));
      for (const Started& each : under_way) {
        EXPECT_TRUE(each.work->wait());
        EXPECT_TRUE(is_all(each.result, each.expected));
      }
    }
  });
}

// Callbacks run on the thread that ended the collective, which may be the only one that can run the next.
TEST(ScheduledCollectives, ACallbackMayWaitForTheNextOne) {
  run_scheduled([](Context& context) {
    Tensors first{at::ones({1000})};
    Tensors second{at::ones({1000})};
    c10d::Backend& backend = *context.world().backend();
    const Future future = backend.allreduce(first)->getFuture();
    const Work next = backend.allreduce(second);
    std::promise<float> through;
    future->addCallback([&](c10::ivalue::Future&) {
      next->wait();
      at::Tensor third = at::ones({10});
      all_reduce(third, context.world());
      through.set_value(third[0].item<float>());
    });
    auto result = through.get_future();
    ASSERT_EQ(result.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(result.get(), 2);
  });
}

TEST(ScheduledCollectives, WorksTensorsAndGroupsMayBeDropped) {
  for (const auto& [name, start] : starts()) {
    run_scheduled([&, &name = name, &start = start](Context& context) {
      Tensors others;
      {
        const Group group = context.new_group({0, 1});
        for (int i = 0; i < 4; ++i) {
          start(*group.backend(), 10'000);
          for (int k = 0; k < 3; ++k) others.push_back(at::full({10'000}, 7.0F));
        }
      }
      barrier(context.world());
      for (const at::Tensor& other : others) EXPECT_TRUE(is_all(other, 7)) << name;
    });
  }
}

// Rank 0 starts a collective that rank 1 never starts, and gives up.
void leave_alone(const std::function<void(c10d::Backend&)>& give_up) {
  run_scheduled([&](Context& context) {
    const Group group = context.new_group({0, 1});
    barrier(group);
    if (context.rank() == 0) {
      give_up(*group.backend());
      Tensors others;
      for (int k = 0; k < 6; ++k) others.push_back(at::full({10'000}, 7.0F));
      for (const at::Tensor& other : others) EXPECT_TRUE(is_all(other, 7));
      Tensors more{at::ones({10'000})};
      EXPECT_THROW(group.backend()->allreduce(more)->wait(), Error) << "the group is broken";
    }
    barrier(context.world());
  });
}

TEST(ScheduledCollectives, ATimeoutEndsWhatNobodyWaitsFor) {
  leave_alone([](c10d::Backend& backend) {
    backend.setTimeout(std::chrono::milliseconds(50));
    Tensors tensors{at::ones({10'000})};
    const Future future = backend.allreduce(tensors)->getFuture();
    future->wait();
    ASSERT_TRUE(future->hasError());
    try {
      std::rethrow_exception(future->exception_ptr());
    } catch (const TimeoutError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{1}) << e.what();
    }
  });
}

TEST(ScheduledCollectives, AWaitHasATimeOfItsOwn) {
  leave_alone([](c10d::Backend& backend) {
    Tensors tensors{at::ones({10'000})};
    const Work work = backend.allreduce(tensors);
    EXPECT_THROW(work->wait(std::chrono::milliseconds(50)), TimeoutError);
    EXPECT_TRUE(work->isCompleted() && !work->isSuccess());
  });
}

TEST(ScheduledCollectives, AnAbortEndsThem) {
  leave_alone([](c10d::Backend& backend) {
    Tensors tensors{at::ones({10'000})};
    const Work work = backend.allreduce(tensors);
    backend.abort();
    EXPECT_TRUE(work->isCompleted() && !work->isSuccess());
    EXPECT_THROW(work->wait(), CancelledError);
  });
}

TEST(ScheduledCollectives, AGroupThatIsShutDownEndsThem) {
  leave_alone([](c10d::Backend& backend) {
    backend.setTimeout(std::chrono::milliseconds(50));
    Tensors tensors{at::ones({10'000})};
    const Work work = backend.allreduce(tensors);
    backend.shutdown();
    EXPECT_TRUE(work->isCompleted() && !work->isSuccess());
  });
}

// One rank waits in the schedule and the other in the engine, or both in different schedules. Both fail long
// before the timeout, even if a rank only sends.
TEST(ScheduledCollectives, RanksThatDisagreeHearOfItAtOnce) {
  const std::map<std::string, std::function<void(Context&, std::int64_t)>> calls{
      {"barrier",
       [](Context& context, std::int64_t length) {
         at::Tensor tensor = at::ones({length});
         if (context.rank() == 0) {
           barrier(context.world());
         } else {
           all_reduce(tensor, context.world());
         }
       }},
      {"nothing",
       [](Context& context, std::int64_t length) {
         at::Tensor tensor = at::ones({context.rank() == 0 ? 0 : length});
         all_reduce(tensor, context.world());
       }},
      {"root",
       [](Context& context, std::int64_t length) {
         at::Tensor tensor = at::ones({length});
         broadcast(tensor, context.world(), context.rank());
       }},
      {"type",
       [](Context& context, std::int64_t length) {
         at::Tensor tensor = at::ones({length}, context.rank() == 0 ? at::kFloat : at::kInt);
         all_reduce(tensor, context.world());
       }},
      {"async", [](Context& context, std::int64_t length) {
         Tensors tensors{at::ones({length})};
         c10d::Backend& backend = *context.world().backend();
         (context.rank() == 0 ? backend.barrier() : backend.allreduce(tensors))->wait();
       }}};
  for (const auto& [name, call] : calls) {
    for (const std::int64_t length : {3, 300'000}) {
      std::atomic<int> errors = 0;
      run_scheduled([&, &name = name, &call = call](Context& context) {
        EXPECT_THROW(call(context, length), MismatchError) << name << ", rank " << context.rank();
        ++errors;
        // No rank leaves before all have the error.
        while (errors < 2) std::this_thread::yield();
        EXPECT_THROW(barrier(context.world()), CommunicationError) << "the group is broken";
        EXPECT_THROW(call(context, length), CommunicationError) << "the group is broken";
      });
    }
  }
}

TEST(ScheduledCollectives, RefusesUndefinedOperationsInTheCall) {
  run_scheduled([](Context& context) {
    c10d::AllreduceOptions options;
    options.reduceOp = ReduceOp::BAND;
    Tensors tensors{at::ones({10})};
    EXPECT_THROW(context.world().backend()->allreduce(tensors, options), UsageError);
  });
}

}  // namespace
}  // namespace rondo::scheduled_collectives_test
