// A rank is killed, leaves or stops in every step of every algorithm, over every torch-free channel: all
// others must raise and name it. By default one rank and some operations; `make faults` tests them all.
#include "tests/collective/schedule_faults.h"

#include <gtest/gtest.h>

#include <thread>

#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/thread_channel.h"
#include "tests/rank_threads.h"

namespace rondo::collective::schedule_faults_test {
namespace {

constexpr std::size_t kElements = 40;
// Longest delay of a rank other than the victim on a busy machine.
constexpr auto kPatience = std::chrono::seconds(15);

struct Left {};

// Runs the case with threads; returns the mistake in each survivor's error.
template <class Expected>
std::vector<std::string> run_threads(const FaultCase& what, Duration limit, bool leaves) {
  const ThreadMesh mesh(kFaultWorld);
  std::vector<std::string> outcome(kFaultWorld);
  std::atomic<int> raised = 0;
  rondo::tests::run_rank_threads(kFaultWorld, [&](int rank) {
    const auto channel = mesh.connect(rank);
    std::string& mine = outcome[static_cast<std::size_t>(rank)];
    // A thread that hangs while it reads a message blocks its sender, so that case is omitted.
    FaultyChannel faulty(*channel, rank == what.victim ? what.when : -1,
                         leaves ? Moment::within : Moment::before, [&] {
                           for (int now = raised; !leaves && now < kFaultWorld - 1; now = raised)
                             raised.wait(now);
                           throw Left{};
                         });
    try {
      run_for_ever(what, faulty, limit, kElements);
    } catch (const Left&) {
      return;
    } catch (const Expected& e) {
      mine = e.ranks() == std::vector<int>{what.victim}
                 ? ""
                 : str("blames ", join(e.ranks(), ","), ": ", e.what());
    } catch (const std::exception& e) {
      mine = str("another error: ", e.what());
    }
    ++raised;
    raised.notify_all();
  });
  return outcome;
}

TEST(ScheduleFaults, AllNameThreadThatLeavesInAnyStep) {
  const std::vector<FaultCase> cases = fault_cases(scheduled_operations());
  EXPECT_GT(cases.size(), 100U);
  for (const FaultCase& what : cases) {
    // A rank that leaves during a message is reported as lost or as failed, depending on the timing.
    for (const std::string& outcome : run_threads<CommunicationError>(what, kNever, true)) {
      ASSERT_EQ(outcome, "") << text(what);
    }
  }
}

TEST(ScheduleFaults, AllNameThreadStuckInAnyStep) {
  // Waiting has no cost, so many run at once.
  constexpr std::size_t kAtOnce = 50;
  const std::vector<FaultCase> cases = fault_cases({OperationKind::all_reduce});
  for (std::size_t begin = 0; begin < cases.size(); begin += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, cases.size() - begin);
    std::vector<std::vector<std::string>> outcomes(count);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back(
          [&, i] { outcomes[i] = run_threads<TimeoutError>(cases[begin + i], kPatience, false); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < count; ++i) {
      for (const std::string& outcome : outcomes[i]) EXPECT_EQ(outcome, "") << text(cases[begin + i]);
    }
  }
}

// Connects ranks as processes over shared memory.
Connect over_shared_memory() {
  return [store = std::shared_ptr<Store>(SharedStore::create())](int rank, const auto& use) {
    SharedMemoryChannel channel(*store, {"faults", rank, kFaultWorld, std::chrono::seconds(60)});
    use(channel);
  };
}

using Nothing = std::vector<std::string>;

TEST(ScheduleFaults, AllNameProcessKilledInAnyStep) {
  EXPECT_EQ(run_faults<PeerLostError>(fault_cases({OperationKind::all_reduce, OperationKind::broadcast}),
                                      SIGKILL, kNever, 1, kElements, over_shared_memory),
            Nothing());
}

TEST(ScheduleFaults, AllNameProcessStoppedInAnyStep) {
  // Waiting has little cost, so many run at once.
  EXPECT_EQ(run_faults<TimeoutError>(fault_cases({OperationKind::all_reduce}), SIGSTOP, kPatience, 40,
                                     kElements, over_shared_memory),
            Nothing());
}

}  // namespace
}  // namespace rondo::collective::schedule_faults_test
