// A rank is killed, leaves or stops in every step of every algorithm, over every torch-free channel: all
// others must raise, and name it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/thread_channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"

namespace rondo::collective {
namespace {

constexpr int kWorld = 4;
constexpr int kVictim = 2;
constexpr std::size_t kElements = 40;
// A survivor that raises because of this has not noticed anything.
constexpr auto kNever = std::chrono::minutes(1);

enum class Moment { before, within };

// Does something before a rank's `when`-th exchange, counted from 0, or within it: when its first piece has
// arrived.
class FaultyChannel final : public Channel {
 public:
  FaultyChannel(Channel& channel, int when, Moment moment, std::function<void()> fault)
      : channel_(channel), left_(when), moment_(moment), fault_(std::move(fault)) {}
  int rank() const override { return channel_.rank(); }
  int size() const override { return channel_.size(); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override {
    if (left_-- != 0) return channel_.exchange(outgoing, incoming, wait);
    if (incoming.empty() || moment_ == Moment::before) fault_();
    std::vector<Incoming> wrapped(incoming.begin(), incoming.end());
    for (Incoming& message : wrapped) {
      message.take = [this](auto, auto) { fault_(); };
    }
    channel_.exchange(outgoing, wrapped, wait);
  }

 private:
  Channel& channel_;
  int left_;
  Moment moment_;
  std::function<void()> fault_;
};

struct Case {
  std::string algorithm;
  OperationKind operation;
  int when;
};

PlanRequest request_of(const Case& what, int rank) {
  PlanRequest request;
  request.operation = what.operation;
  request.rank = rank;
  request.world = kWorld;
  request.bytes = {kElements * sizeof(float)};
  request.segment = {64};
  request.hosts = {0, 1, 0, 1};
  return request;
}

// Every exchange of the victim in every algorithm.
std::vector<Case> all_cases(const std::vector<OperationKind>& operations) {
  std::vector<Case> cases;
  for (const Algorithm& algorithm : algorithms()) {
    for (const OperationKind operation : operations) {
      if (!algorithm.has(operation)) continue;
      const Plan plan = make_plan(algorithm.name, request_of({algorithm.name, operation, 0}, kVictim));
      int rounds = 0;
      int last = -1;
      for (const Step& step : plan.steps) {
        if (step.peer >= 0 && step.round != last) ++rounds;
        last = step.round;
      }
      for (int when = 0; when < rounds; ++when) cases.push_back({algorithm.name, operation, when});
    }
  }
  return cases;
}

std::string text(const Case& what) {
  return str(what.algorithm, " ", rondo::name(what.operation), ", exchange ", what.when);
}

// What training does: the same collective again and again. Ends with an exception.
void run_for_ever(const Case& what, Channel& channel, Duration limit) {
  std::vector<std::byte> data(kElements * sizeof(float));
  Executor executor(make_plan(what.algorithm, request_of(what, channel.rank())), DType::float32,
                    Reduction::sum);
  while (true) executor.run(channel, data, {Deadline::after(limit), nullptr});
}

struct Left {};

// Runs the case with threads; returns the ranks that each survivor blamed, or what else happened.
template <class Expected>
std::vector<std::string> run_threads(const Case& what, Duration limit, bool leaves) {
  const ThreadMesh mesh(kWorld);
  std::vector<std::string> outcome(kWorld);
  std::atomic<int> raised = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      const auto channel = mesh.connect(rank);
      std::string& mine = outcome[static_cast<std::size_t>(rank)];
      // A thread that is stuck while it reads a message holds up its sender, so that is left out.
      FaultyChannel faulty(*channel, rank == kVictim ? what.when : -1,
                           leaves ? Moment::within : Moment::before, [&] {
                             for (int now = raised; !leaves && now < kWorld - 1; now = raised)
                               raised.wait(now);
                             throw Left{};
                           });
      try {
        run_for_ever(what, faulty, limit);
      } catch (const Left&) {
        return;
      } catch (const Expected& e) {
        mine = e.ranks() == std::vector<int>{kVictim} ? ""
                                                      : str("blames ", join(e.ranks(), ","), ": ", e.what());
      } catch (const std::exception& e) {
        mine = str("another error: ", e.what());
      }
      ++raised;
      raised.notify_all();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

TEST(PlanFaults, AThreadThatLeavesInAnyStepIsNamedByAll) {
  const std::vector<Case> cases = all_cases(planned_operations());
  EXPECT_GT(cases.size(), 100U);
  for (const Case& what : cases) {
    // Who leaves while a message is on its way is lost or has failed, as it happens.
    for (const std::string& outcome : run_threads<CommunicationError>(what, kNever, true)) {
      ASSERT_EQ(outcome, "") << text(what);
    }
  }
}

TEST(PlanFaults, AThreadThatIsStuckInAnyStepIsNamedByAllAtTheDeadline) {
  // Waiting costs nothing, so all at once.
  const std::vector<Case> cases = all_cases({OperationKind::all_reduce});
  std::vector<std::vector<std::string>> outcomes(cases.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back(
        [&, i] { outcomes[i] = run_threads<TimeoutError>(cases[i], std::chrono::seconds(1), false); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const std::string& outcome : outcomes[i]) EXPECT_EQ(outcome, "") << text(cases[i]);
  }
}

// Ranks as processes over shared memory. A survivor ends with 0 when it raised what it should.
template <class Expected>
class Processes {
 public:
  Processes(const Case& what, Duration limit, int signal) : store_(SharedStore::create()) {
    for (int rank = 0; rank < kWorld; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(survive(what, rank, limit, signal) ? 0 : 1);
      children_.push_back(child);
    }
  }
  // Whether all survivors did what they should; then the victim is gone too.
  bool finish() {
    bool right = true;
    for (int rank = 0; rank < kWorld; ++rank) {
      if (rank == kVictim) continue;
      int status = 0;
      waitpid(children_[static_cast<std::size_t>(rank)], &status, 0);
      right = right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    kill(children_[kVictim], SIGKILL);
    waitpid(children_[kVictim], nullptr, 0);
    return right;
  }

 private:
  bool survive(const Case& what, int rank, Duration limit, int signal) {
    try {
      SharedMemoryChannel channel(*store_, {"faults", rank, kWorld, std::chrono::seconds(60)});
      FaultyChannel faulty(channel, rank == kVictim ? what.when : -1, Moment::within,
                           [&] { kill(getpid(), signal); });
      run_for_ever(what, faulty, limit);
    } catch (const Expected& e) {
      if (e.ranks() == std::vector<int>{kVictim}) return true;
      fprintf(stderr, "rank %d blames another: %s\n", rank, e.what());
    } catch (const std::exception& e) {
      fprintf(stderr, "rank %d: another error: %s\n", rank, e.what());
    }
    return false;
  }

  std::unique_ptr<SharedStore> store_;
  std::vector<pid_t> children_;
};

TEST(PlanFaults, AProcessKilledInAnyStepIsNamedByAll) {
  for (const Case& what : all_cases({OperationKind::all_reduce, OperationKind::broadcast})) {
    ASSERT_TRUE(Processes<PeerLostError>(what, kNever, SIGKILL).finish()) << text(what);
  }
}

TEST(PlanFaults, AProcessStoppedInAnyStepIsNamedByAllAtTheDeadline) {
  const std::vector<Case> cases = all_cases({OperationKind::all_reduce});
  // Waiting costs little, so many at once.
  constexpr std::size_t kAtOnce = 20;
  for (std::size_t begin = 0; begin < cases.size(); begin += kAtOnce) {
    std::vector<Processes<TimeoutError>> running;
    const std::size_t end = std::min(cases.size(), begin + kAtOnce);
    for (std::size_t i = begin; i < end; ++i)
      running.emplace_back(cases[i], std::chrono::seconds(1), SIGSTOP);
    for (std::size_t i = begin; i < end; ++i) EXPECT_TRUE(running[i - begin].finish()) << text(cases[i]);
  }
}

}  // namespace
}  // namespace rondo::collective
