#include "rondo/backend/context.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <future>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"
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

// A program that is no rank of the job: it listens on 127.0.0.1 and never answers.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_.number(), any, size) != 0 || listen(socket_.number(), 8) != 0 ||
        getsockname(socket_.number(), any, &size) != 0) {
      throw Error("the test's server cannot listen");
    }
    port_ = ntohs(address.sin_port);
  }
  InitOptions options(int rank) const {
    return {.backend = "native",
            .init_method = str("apart:tcp://127.0.0.1:", port_),
            .rank = rank,
            .world_size = 2,
            .timeout = std::chrono::milliseconds(100)};
  }

 private:
  launch::Descriptor socket_;
  int port_ = 0;
};

TEST(Context, NamesTheProcessThatHasThePort) {
  const SilentServer other;
  const std::string own = str("Address already in use by pid ", getpid());
  expect_facts(message_of<Error>([&] { init(other.options(0)); }), {"rank 0 cannot listen", own.c_str()});
}

TEST(Context, NamesAnotherProgramAtTheAddress) {
  const SilentServer other;
  expect_facts(message_of<TimeoutError>([&] { init(other.options(1)); }),
               {"rank 1 cannot reach rank 0", "100 ms", "does not answer", "another program"});
}

TEST(Context, BoundedCallReportsWhileItWaits) {
  int seconds = 0;
  std::promise<void> end;
  run_bounded([&] { end.get_future().wait(); }, std::chrono::minutes(1), "rank 0",
              [&] {
                if (++seconds == 1) end.set_value();
              });
  EXPECT_EQ(seconds, 1);
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
