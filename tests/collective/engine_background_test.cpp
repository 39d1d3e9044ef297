// A started operation ends without further calls of its rank and keeps its memory until then, also after any
// failure and without its handle, buffers or engine. AddressSanitizer reports writes into freed memory.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <numeric>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/store.h"
#include "rondo/collective/shared_memory/engine.h"
#include "tests/collective/engine_threads.h"
#include "tests/collective/held_operation.h"
#include "tests/rank_processes.h"
#include "tests/rank_threads.h"

namespace rondo::shared_memory::engine_background_test {
namespace {

const Wait kNoLimit{};

const std::vector<OperationKind>& kinds() {
  static const std::vector<OperationKind> all{
      OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
      OperationKind::broadcast,  OperationKind::reduce,         OperationKind::gather,
      OperationKind::scatter,    OperationKind::all_to_all,     OperationKind::barrier};
  return all;
}

// Returns the expected first byte on `rank` at the end.
int expected(OperationKind kind, int rank, int size) {
  const int sum = size * (size + 1) / 2;
  switch (kind) {
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter:
      return sum;
    case OperationKind::reduce:
      return rank == 0 ? sum : rank + 1;
    case OperationKind::gather:
      return rank == 0 ? 1 : 0;
    case OperationKind::barrier:
      return 0;
    default:
      return 1;
  }
}

const std::byte* result_of(Held& held, OperationKind kind) {
  const bool in_place =
      kind == OperationKind::all_reduce || kind == OperationKind::broadcast || kind == OperationKind::reduce;
  return in_place ? held.input() : held.output();
}

class Background : public ::testing::TestWithParam<std::tuple<OperationKind, std::size_t>> {
 protected:
  OperationKind kind() const { return std::get<0>(GetParam()); }
  std::size_t bytes() const { return std::get<1>(GetParam()); }
};

TEST_P(Background, EndsWithoutFurtherCallsOfItsRank) {
  MemoryStore store;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    for (int round = 0; round < 3; ++round) {
      const auto held = start(engine, kind(), bytes());
      ASSERT_TRUE(held->wait()) << "rank " << rank;
      EXPECT_EQ(held->error(), nullptr);
      EXPECT_EQ(static_cast<int>(*result_of(*held, kind())), expected(kind(), rank, 2)) << "rank " << rank;
    }
  });
}

// The helper thread checks less often for a rank that calls often; it still takes over when the calls end.
TEST(BackgroundEnds, AfterARankThatCalledOften) {
  MemoryStore store;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    const auto first = start(engine, OperationKind::all_reduce, 100'000);
    // 3000 calls take longer than the first checks.
    for (int i = 0; i < 3000; ++i) engine.wait(engine.start({}), kNoLimit);
    const auto last = start(engine, OperationKind::all_reduce, 100'000);
    ASSERT_TRUE(first->wait() && last->wait()) << "rank " << rank;
    EXPECT_EQ(static_cast<int>(*last->input()), 3);
  });
}

TEST_P(Background, KeepsItsMemoryWhenEverybodyElseDropsIt) {
  MemoryStore store;
  tests::run_rank_threads(3, [&](int rank) {
    Engine engine(store, rank_options(rank, 3), nullptr);
    std::vector<std::weak_ptr<Held>> dropped;
    for (int i = 0; i < 20; ++i) dropped.push_back(start(engine, kind(), bytes()));
    engine.wait(engine.start({}), kNoLimit);
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    for (const auto& one : dropped) {
      while (!one.expired() && !deadline.passed()) std::this_thread::yield();
      EXPECT_TRUE(one.expired()) << "not released";
    }
  });
}

TEST_P(Background, EndsWhenTheEngineIsDropped) {
  MemoryStore store;
  std::atomic<int> right = 0;
  tests::run_rank_threads(3, [&](int rank) {
    std::shared_ptr<Held> held;
    {
      Engine engine(store, rank_options(rank, 3), nullptr);
      held = start(engine, kind(), bytes());
    }
    ASSERT_TRUE(held->wait(Duration::zero())) << "ended by the destructor at the latest";
    if (!held->error() && static_cast<int>(*result_of(*held, kind())) == expected(kind(), rank, 3)) ++right;
  });
  EXPECT_EQ(right, 3);
}

TEST_P(Background, EndsWhenAPeerNeverComes) {
  run_engine_threads(2, nullptr, [&](Engine& engine) {
    const int rank = engine.rank();
    if (rank == 1) return;
    const auto held = start(engine, kind(), bytes());
    ASSERT_TRUE(held->wait());
    // An operation that needs nothing of the peer succeeds; all others report its loss.
    if (held->error() != nullptr) {
      EXPECT_THROW(std::rethrow_exception(held->error()), PeerLostError);
    } else {
      EXPECT_TRUE(kind() == OperationKind::broadcast || kind() == OperationKind::scatter ||
                  kind() == OperationKind::reduce || kind() == OperationKind::gather);
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<Background::ParamType>& info) {
  return str(name(std::get<0>(info.param)), "_", std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(KindsAndSizes, Background,
                         ::testing::Combine(::testing::ValuesIn(kinds()),
                                            ::testing::Values<std::size_t>(4, 4000, 3'000'000)),
                         name_of);

TEST(BackgroundEnds, AtItsDeadlineNamingWhoIsMissing) {
  std::atomic<bool> through = false;
  run_engine_threads(2, nullptr, [&](Engine& engine) {
    const int rank = engine.rank();
    if (rank == 1) {
      while (!through) std::this_thread::yield();
      return;
    }
    const auto held =
        start(engine, OperationKind::all_reduce, 100, Deadline::after(std::chrono::milliseconds(100)));
    EXPECT_TRUE(held->wait());
    try {
      std::rethrow_exception(held->error());
    } catch (const TimeoutError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{1});
    }
    through = true;
  });
}

TEST(BackgroundEnds, WhenAbortedHereAndThere) {
  std::latch receiving(1);  // a rank that joins after the abort cannot start anything
  run_engine_threads(2, nullptr, [&](Engine& engine) {
    const int rank = engine.rank();
    std::vector<std::shared_ptr<Held>> held;
    if (rank == 0) {
      for (const OperationKind kind : {OperationKind::all_reduce, OperationKind::barrier})
        held.push_back(start(engine, kind, 1000));
      receiving.wait();
      engine.abort("enough");
    } else {
      // An operation that rank 0 does not match: never completes.
      std::byte byte{};
      auto owner = std::make_shared<Held>(0, 0);
      engine.start_receive({.peer = 0, .data = &byte, .bytes = 1, .owner = owner});
      receiving.count_down();
      held.push_back(owner);
    }
    for (const auto& one : held) {
      EXPECT_TRUE(one->wait());
      EXPECT_NE(one->error(), nullptr);
    }
  });
}

// The thread that ends an operation may use the engine for the next one.
TEST(BackgroundEnds, MayStartTheNext) {
  MemoryStore store;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<Held> last;
    std::function<void(int)> next = [&](int left) {
      auto held = std::make_shared<Held>(1000, 0);
      if (left > 0) {
        held->then = [&, left] { next(left - 1); };
      } else {
        const std::lock_guard lock(mutex);
        last = held;
        changed.notify_all();
      }
      CollectiveRequest request{.kind = OperationKind::all_reduce, .type = DType::uint8, .elements = 1000};
      request.input.base = request.output.base = held->input();
      engine.start(request, held);
    };
    next(20);
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return last != nullptr; }));
    lock.unlock();
    EXPECT_TRUE(last->wait());
  });
}

// As in a callback of a future that waits for other futures.
TEST(BackgroundEnds, WaitForOperationsInFlightAndTheNext) {
  MemoryStore store;
  std::promise<void> started;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    const auto first = std::make_shared<Held>(1000, 0);
    std::shared_ptr<Held> second;
    bool in_time = false;
    if (rank == 0) {
      first->then = [&] {
        in_time = second->wait() && start(engine, OperationKind::all_reduce, 100'000)->wait();
      };
    } else {
      started.get_future().wait();
    }
    CollectiveRequest request{.kind = OperationKind::all_reduce, .type = DType::uint8, .elements = 1000};
    request.input.base = request.output.base = first->input();
    engine.start(request, first);
    second = start(engine, OperationKind::all_reduce, 100'000);
    if (rank == 0) {
      started.set_value();
    } else {
      EXPECT_TRUE(start(engine, OperationKind::all_reduce, 100'000)->wait());
    }
    EXPECT_TRUE(first->wait(std::chrono::seconds(150)));
    EXPECT_EQ(in_time, rank == 0);
  });
}

// As in Python, if the thread that drops the engine holds the interpreter's lock, which the ended operation
// needs.
TEST(BackgroundEnds, MayWaitForTheEndOfTheEngine) {
  MemoryStore store;
  std::promise<void> started;
  tests::run_rank_threads(2, [&](int rank) {
    auto engine = std::make_unique<Engine>(store, rank_options(rank, 2), nullptr);
    const auto held = std::make_shared<Held>(1000, 0);
    std::promise<void> announced;
    std::promise<void> dropped;
    bool in_time = false;
    if (rank == 0) {
      held->then = [&] {
        announced.set_value();
        in_time = dropped.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
      };
    } else {
      started.get_future().wait();
    }
    CollectiveRequest request{.kind = OperationKind::all_reduce, .type = DType::uint8, .elements = 1000};
    request.input.base = request.output.base = held->input();
    engine->start(request, held);
    if (rank == 0) {
      started.set_value();
      announced.get_future().wait();  // by the helper: this thread no longer calls the engine
    }
    engine.reset();
    dropped.set_value();
    EXPECT_TRUE(held->wait());
    EXPECT_EQ(in_time, rank == 0);
  });
}

TEST(BackgroundMessages, GoOnWhileTheSenderIsElsewhere) {
  MemoryStore store;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    constexpr std::size_t bytes = std::size_t{4} << 20;
    auto held = std::make_shared<Held>(bytes, 0);
    std::memset(held->input(), rank == 0 ? 7 : 0, bytes);
    const Message message{.peer = 1 - rank, .data = held->input(), .bytes = bytes, .owner = held};
    if (rank == 0) {
      engine.start_send(message);
      store.get("received", {Deadline::after(std::chrono::seconds(60)), nullptr});
    } else {
      engine.wait(*engine.start_receive(message), kNoLimit);
      store.set("received", "");
    }
    ASSERT_TRUE(held->wait());
    EXPECT_EQ(static_cast<int>(held->input()[bytes - 1]), 7);
  });
}

TEST(BackgroundMessages, FromAnyRankMayBePostedFirst) {
  MemoryStore store;
  tests::run_rank_threads(3, [&](int rank) {
    Engine engine(store, rank_options(rank, 3), nullptr);
    std::vector<std::shared_ptr<Held>> held;
    std::vector<std::shared_ptr<Message>> received;
    for (int i = 0; i < 2; ++i) {
      held.push_back(std::make_shared<Held>(sizeof(int), 0));
      received.push_back(engine.start_receive({.peer = kAnyRank,
                                               .tag = 3,
                                               .data = held.back()->input(),
                                               .bytes = sizeof(int),
                                               .owner = held.back()}));
    }
    engine.wait(engine.start({}), kNoLimit);  // all ranks have posted
    const int mine = 100 + rank;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      auto sent = std::make_shared<Held>(sizeof(int), 0);
      std::memcpy(sent->input(), &mine, sizeof mine);
      engine.start_send({.peer = peer, .tag = 3, .data = sent->input(), .bytes = sizeof mine, .owner = sent});
    }
    int sum = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(held[i]->wait());
      int value = 0;
      std::memcpy(&value, held[i]->input(), sizeof value);
      EXPECT_EQ(value, 100 + received[i]->peer);
      sum += value;
    }
    EXPECT_EQ(sum, 303 - mine);
  });
}

// Receives from one rank and from any rank match messages in the order in which they were posted.
TEST(BackgroundMessages, FromAnyAndFromOneKeepTheirOrder) {
  MemoryStore store;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    std::array<int, 6> numbers{};
    std::vector<std::shared_ptr<Message>> messages;
    if (rank == 0) {
      std::iota(numbers.begin(), numbers.end(), 0);
      for (int& number : numbers)
        messages.push_back(engine.start_send(
            {.peer = 1, .tag = 1, .data = reinterpret_cast<std::byte*>(&number), .bytes = sizeof number}));
    } else {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (i == 3) engine.wait(*messages[0], kNoLimit);  // the rest is posted after messages have arrived
        messages.push_back(engine.start_receive({.peer = i % 2 == 0 ? kAnyRank : 0,
                                                 .tag = 1,
                                                 .data = reinterpret_cast<std::byte*>(&numbers[i]),
                                                 .bytes = sizeof(int)}));
      }
    }
    for (const auto& message : messages) engine.wait(*message, kNoLimit);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
  });
}

// A rank that left in order fails messages with it, not the group.
TEST(BackgroundMessages, WithARankThatHasLeftEndAlone) {
  run_engine_threads(3, nullptr, [&](Engine& engine) {
    const int rank = engine.rank();
    if (rank == 2) return;
    auto held = std::make_shared<Held>(8, 0);
    if (rank == 0) {
      engine.start_receive({.peer = 2, .data = held->input(), .bytes = 8, .owner = held});
      ASSERT_TRUE(held->wait());
      EXPECT_THROW(std::rethrow_exception(held->error()), PeerLostError);
    }
    const Message message{.peer = 1 - rank, .tag = 1, .data = held->input(), .bytes = 8};
    engine.wait(*(rank == 0 ? engine.start_send(message) : engine.start_receive(message)), kNoLimit);
  });
}

// A rank that has given up may reuse its memory at once: a late peer must neither write there nor read the
// new contents as the operation's data.
TEST(BackgroundMemory, OfAFailedRankIsNotTouched) {
  for (const OperationKind kind : {OperationKind::all_reduce, OperationKind::broadcast}) {
    MemoryStore store;
    const auto arena = std::make_shared<SharedArena>(MiB(64));
    std::atomic<bool> given_up = false;
    tests::run_rank_threads(2, [&](int rank) {
      Engine engine(store, rank_options(rank, 2), arena);
      constexpr std::size_t bytes = std::size_t{1} << 20;
      auto* buffer = static_cast<std::byte*>(arena->allocate(bytes));
      std::memset(buffer, 1, bytes);
      CollectiveRequest request{.kind = kind, .type = DType::uint8, .elements = bytes};
      request.input.base = request.output.base = buffer;
      if (rank == 0) {
        EXPECT_THROW(
            engine.wait(engine.start(request), {Deadline::after(std::chrono::milliseconds(50)), nullptr}),
            TimeoutError);
        std::memset(buffer, 9, bytes);
        given_up = true;
        EXPECT_THROW(engine.wait(engine.start({}), kNoLimit), TimeoutError);
      } else {
        while (!given_up) std::this_thread::yield();
        EXPECT_THROW(engine.wait(engine.start(request), kNoLimit), CommunicationError) << name(kind);
        EXPECT_EQ(static_cast<int>(buffer[0]), 1) << name(kind);
      }
      engine.close("over");
      if (rank == 0) {
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(static_cast<int>(buffer[i]), 9) << name(kind);
      }
    });
  }
}

// Returns the timeout of a thread's futex sleep from /proc: 0 if the thread is not in such a sleep, and may
// use the processor.
std::chrono::seconds longest_sleep(const std::filesystem::path& thread) {
  std::ifstream file(thread / "syscall");
  long number = -1;
  std::array<unsigned long, 4> arguments{};
  file >> number >> std::hex;
  for (unsigned long& argument : arguments) file >> argument;
  if (!file || number != SYS_futex || arguments[3] == 0) return {};
  timespec limit{};
  iovec here{&limit, sizeof limit};
  iovec there{reinterpret_cast<void*>(arguments[3]), sizeof limit};
  if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != sizeof limit) return {};
  return std::chrono::seconds(limit.tv_sec);
}

// Returns this process's helper threads.
std::vector<std::filesystem::path> helpers() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(entry.path() / "comm"), comm);
    if (comm == "rondo-helper") found.push_back(entry.path());
  }
  return found;
}

TEST(BackgroundThread, TakesNoTimeWhileNothingIsUnderWay) {
  if (!std::ifstream("/proc/self/syscall")) GTEST_SKIP() << "this kernel has no /proc/self/syscall";
  MemoryStore store;
  tests::run_rank_threads(2, [&](int rank) {
    Engine engine(store, rank_options(rank, 2), nullptr);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(start(engine, OperationKind::all_reduce, 100000)->wait());
    engine.wait(engine.start({}), kNoLimit);
    if (rank == 1) {
      store.get("looked", kNoLimit);
      return;
    }
    const auto asleep = [] {
      const std::vector<std::filesystem::path> threads = helpers();
      // A rank that starts an operation while its helper announces the previous one gets a second helper.
      return threads.size() >= 2 && std::all_of(threads.begin(), threads.end(), [](const auto& thread) {
               return longest_sleep(thread) >= std::chrono::minutes(10);
             });
    };
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    // Checked once: rank 1 may still be about to wake its helper, which slept before.
    bool are_asleep = false;
    while (!(are_asleep = asleep()) && !deadline.passed()) std::this_thread::yield();
    EXPECT_TRUE(are_asleep) << "helper threads that wake up without being called";
    store.set("looked", "");
  });
}

TEST(BackgroundProcesses, LeaveWhileOperationsAreUnderWay) {
  EXPECT_EQ(tests::run_rank_processes(
                2,
                [](Store& store, int rank) {
                  // Never destroyed, as in a program at exit(); not a leak to report.
                  std::atexit([] {
                    stop_helper_threads();
                    _exit(::testing::Test::HasFailure() ? 1 : 0);
                  });
                  auto* const engine =
                      new Engine(store, rank_options(rank, 2), std::make_shared<SharedArena>(MiB(64)));
                  for (const OperationKind kind : kinds()) start(*engine, kind, 2'000'000);
                  auto held = std::make_shared<Held>(4'000'000, 0);
                  const Message message{
                      .peer = 1 - rank, .data = held->input(), .bytes = 4'000'000, .owner = held};
                  rank == 0 ? engine->start_send(message) : engine->start_receive(message);
                  // A rank could not start the rest after its peer has ended.
                  store.set(str("started ", rank), "");
                  store.get(str("started ", 1 - rank), kNoLimit);
                  std::exit(0);
                }),
            0);
}

}  // namespace
}  // namespace rondo::shared_memory::engine_background_test
