// A rank of the shared-memory engine is killed or stopped at any moment of any operation: all others must
// raise and name it. By default one rank and one moment each; `make faults` tests all ranks and many moments.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <thread>

#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/collective/shared_memory/engine.h"
#include "rondo/collective/shared_memory/engine_visit.h"
#include "tests/collective/faulty_job.h"
#include "tests/rank_processes.h"

namespace rondo::shared_memory::engine_faults_test {
namespace {

// A hook for the process's next check for ended peers: calls begins(), makes the check last until one has
// ended, and calls is_over().
struct LongLook {
  std::function<void()> begins, is_over;
  std::atomic<bool> is_next = false;
} long_look;

}  // namespace
}  // namespace rondo::shared_memory::engine_faults_test

// Replaces the C library's function. Calls another one, since aarch64 has no system call poll.
extern "C" int poll(pollfd* watched, nfds_t count, int patience) {
  const auto wait = [&](int milliseconds) {
    const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    return ppoll(watched, count, milliseconds < 0 ? nullptr : &time, nullptr);
  };
  auto& look = rondo::shared_memory::engine_faults_test::long_look;
  if (count < 2 || !look.is_next.exchange(false)) return wait(patience);
  look.begins();
  const int result = wait(60'000);
  look.is_over();
  return result;
}

namespace rondo::shared_memory::engine_faults_test {
namespace {

constexpr int kWorld = 4;
// Elements of a piece: a few chunks of the engine's staging buffers, and in place if registered.
constexpr std::size_t kElements = 40000;

struct Case {
  OperationKind kind;
  bool registered;
  int victim;
  int after;  // rank 0's operations, then this many times 10 us
};

std::vector<Case> all_cases(bool all) {
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  for (const OperationKind kind :
       {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
        OperationKind::broadcast, OperationKind::reduce, OperationKind::gather, OperationKind::scatter,
        OperationKind::all_to_all, OperationKind::barrier}) {
    for (const bool registered : {false, true}) {
      for (const int victim : all ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{2}) {
        for (int moment = 0; moment < (all ? 5 : 1); ++moment) {
          cases.push_back({kind, registered, victim, 1 + static_cast<int>((seed * 7919) % 50)});
          ++seed;
        }
      }
    }
  }
  return cases;
}

std::string text(const Case& what) {
  return str(name(what.kind), what.registered ? ", registered" : ", ordinary", ", rank ", what.victim,
             ", after ", what.after);
}

// Repeats one operation, and records in the store how many rank 0 has completed.
void run_for_ever(Store& store, const Case& what, int rank, Duration stopped_grace,
                  const std::function<void()>& note_error) {
  GroupOptions options;
  options.rank = rank;
  options.size = kWorld;
  options.timeout = std::chrono::minutes(1);
  options.stopped_grace = stopped_grace;
  const auto arena = std::make_shared<SharedArena>(GiB(1));
  Engine engine(store, options, arena);
  constexpr std::size_t kBytes = kElements * kWorld * sizeof(float);
  std::vector<std::byte> heap(what.registered ? 0 : 2 * kBytes);
  std::byte* const memory =
      what.registered ? static_cast<std::byte*>(arena->allocate(2 * kBytes)) : heap.data();
  std::fill_n(memory, 2 * kBytes, std::byte{0});
  CollectiveRequest request{.kind = what.kind, .type = DType::float32, .elements = kElements};
  request.input = {memory, kElements * sizeof(float), {}};
  const bool in_place = what.kind == OperationKind::all_reduce || what.kind == OperationKind::reduce ||
                        what.kind == OperationKind::broadcast;
  request.output = {in_place ? memory : memory + kBytes, kElements * sizeof(float), {}};
  if (what.kind == OperationKind::barrier) request = {};
  for (int done = 0;; ++done) {
    try {
      engine.run(CollectiveRequest(request), options.timeout);
    } catch (...) {
      note_error();
      throw;
    }
    if (rank == 0 && done <= what.after) store.set("done", std::to_string(done));
  }
}

template <class Expected>
void expect_named(int signal, std::size_t at_once) {
  const std::vector<Case> cases = all_cases(tests::all_faults());
  tests::FaultRecord record;
  for (std::size_t begin = 0; begin < cases.size(); begin += at_once) {
    std::vector<std::unique_ptr<tests::FaultyJob>> jobs;
    for (std::size_t i = begin; i < std::min(cases.size(), begin + at_once); ++i) {
      const Case& what = cases[i];
      const std::shared_ptr<Store> store = SharedStore::create();
      jobs.push_back(std::make_unique<tests::FaultyJob>(text(what), kWorld, what.victim, signal));
      jobs.back()->start<Expected>([&, store, job = jobs.back().get()](int rank, const auto&) {
        run_for_ever(*store, what, rank, std::chrono::seconds(1), [job] { job->note_error(); });
      });
      const Deadline patience = Deadline::after(std::chrono::seconds(60));
      while (store->try_get("done") != std::to_string(what.after) && !patience.passed())
        std::this_thread::yield();
      // At a moment within the next operation.
      const Deadline moment = Deadline::after(std::chrono::microseconds(10) * what.after);
      while (!moment.passed()) std::this_thread::yield();
      jobs.back()->strike();
    }
    for (const auto& job : jobs) record.finish(*job);
  }
  EXPECT_EQ(record.wrong(), std::vector<std::string>());
}

TEST(EngineFaults, AllRanksNameKilledRankInAnyOperation) { expect_named<PeerLostError>(SIGKILL, 1); }

TEST(EngineFaults, AllRanksNameStoppedRankInAnyOperation) { expect_named<TimeoutError>(SIGSTOP, 9); }

TEST(EngineFaults, LooksForStoppedRanksKeepTheirRhythm) {
  const TimePoint due = Clock::now() + std::chrono::hours(1);
  EXPECT_EQ(next_look_for_stopped(due), due + kStoppedCheckInterval);
  // A rank that was itself delayed skips the checks that it has missed.
  const TimePoint now = Clock::now();
  EXPECT_GE(next_look_for_stopped(now - std::chrono::hours(1)), now + kStoppedCheckInterval);
}

TEST(EngineFaults, DepartedRankThatExitsIsNotBlamed) {
  const auto run = [](Store& store, int rank) {
    GroupOptions options;
    options.rank = rank;
    options.size = 3;
    options.timeout = std::chrono::minutes(1);
    const Wait wait{Deadline::after(options.timeout), nullptr};
    std::byte byte{7};
    const auto arena = std::make_shared<SharedArena>(MiB(16));
    auto engine = std::make_unique<Engine>(store, options, arena);
    if (rank == 2) {
      store.get("0 looks", wait);
      engine.reset();
      return;
    }
    if (rank == 1) {
      store.get("0 has looked", wait);
      engine->wait(*engine->start_send({.peer = 0, .data = &byte, .bytes = 1}), wait);
      store.get("0 has it", wait);
      return;
    }
    byte = {};
    const auto message = engine->start_receive({.peer = 1, .data = &byte, .bytes = 1});
    long_look.begins = [&store] { store.set("0 looks", "yes"); };
    long_look.is_over = [&store] { store.set("0 has looked", "yes"); };
    long_look.is_next = true;
    engine->wait(*message, wait);
    EXPECT_EQ(byte, std::byte{7});
    store.set("0 has it", "yes");
  };
  EXPECT_EQ(tests::run_rank_processes(3, run), 0);
}

}  // namespace
}  // namespace rondo::shared_memory::engine_faults_test
