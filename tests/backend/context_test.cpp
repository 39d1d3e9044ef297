#include "rondo/backend/context.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::context_test {
namespace {

using testing::expect_facts;
using testing::message_of;

InitOptions rank_of_two(int rank, const c10::intrusive_ptr<c10d::Store>& store) {
  return {
      .backend = "native", .rank = rank, .world_size = 2, .store = store, .timeout = std::chrono::minutes(2)};
}

TEST(Context, SecondInitInAnEpochIsAnError) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(2, [&](int rank) {
    InitOptions options = rank_of_two(rank, store);
    const Context context = init(options);
    const TimePoint begin = Clock::now();
    expect_facts(message_of<UsageError>([&] { init(options); }), {"init", "twice", "epoch", "0"});
    EXPECT_LT(Clock::now() - begin, options.timeout / 2);
    options.epoch = 1;
    const Context next = init(options);
    barrier(next.world());
    barrier(context.world());
  });
}

// A rank whose init() failed may call it again.
TEST(Context, InitMayBeCalledAgainAfterItFailed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  InitOptions options = rank_of_two(0, store);
  options.local_rank = 0;
  options.host = "a";
  options.timeout = std::chrono::milliseconds(200);
  expect_facts(message_of<TimeoutError>([&] { init(options); }), {"1"});
  EXPECT_EQ(message_of<TimeoutError>([&] { init(options); }).find("twice"), std::string::npos);
}

// Rank 0 has reached the store, and is stopped before it publishes the value for all.
TEST(Context, WaitForRank0NamesIt) {
  StoreFromC10d store(c10::make_intrusive<c10d::HashStore>());
  try {
    agree_on_deterministic(false, 1, 2, store, std::chrono::milliseconds(50));
    FAIL() << "rank 0 has said nothing";
  } catch (const TimeoutError& e) {
    EXPECT_EQ(e.ranks(), std::vector<int>{0});
    expect_facts(e.what(), {"rank 0", "50 ms"});
  }
}

TEST(Context, GlooNamesTheMembersThatDidNotCome) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  BackendRequest request;
  request.group_name = "pair";
  request.rank = 0;
  request.size = 2;
  request.world_ranks = {3, 5};
  request.timeout = std::chrono::milliseconds(300);
  request.store = c10::make_intrusive<c10d::HashStore>();
  request.store->setTimeout(std::chrono::milliseconds(300));
  try {
    make_gloo_backend(request);
    FAIL() << "nobody else is there";
  } catch (const TimeoutError& e) {
    EXPECT_EQ(e.ranks(), std::vector<int>{1});
    expect_facts(e.what(), {"pair", "rank 5"});
  }
}

// Rank 2 leaves; rank 1, which needs it, fails; rank 0 needs rank 1 in a group without rank 2.
TEST(Context, NamesFailureInAnotherGroupAsCause) {
  testing::run_ranks(3, "native", [](Context& context) {
    const Group first = context.new_group({0, 1});
    const Group second = context.new_group({1, 2});
    barrier(context.world());
    at::Tensor tensor = at::ones({1});
    if (context.rank() == 2) return;
    if (context.rank() == 1) {
      expect_facts(message_of<PeerLostError>([&] { all_reduce(tensor, second); }), {"world rank 2"});
      return;
    }
    const std::string message = message_of<PeerLostError>([&] { all_reduce(tensor, first); });
    EXPECT_LT(message.find("world rank 2"), message.find("consequence")) << message;
    expect_facts(message, {"consequence"});
  });
}

}  // namespace
}  // namespace rondo::context_test
