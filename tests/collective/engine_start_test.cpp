// Ranks that end while their group is being formed: all ranks name the one that ended first, even those that
// only meet ranks which gave up because of it. Processes run one after the other, to force the order of
// events.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/collective/shared_memory/engine.h"
#include "tests/sleeping.h"

namespace rondo::shared_memory::engine_start_test {
namespace {

constexpr int kSize = 4;
constexpr int kVictim = 2;

Wait soon() { return {Deadline::after(std::chrono::seconds(60)), nullptr}; }

class EngineStart : public ::testing::Test {
 protected:
  // Starts a rank, which records the outcome in the store.
  void start(int rank, Duration timeout = std::chrono::seconds(60)) {
    const pid_t child = fork();
    if (child == 0) form(rank, timeout);
    pids_[rank] = child;
    store_->get(str("shared_memory/", rank), soon());
  }
  // Starts a rank whose first thread has exited: other processes cannot open its files, but it has not ended.
  // A process that is ended by a signal is in this state for a moment.
  void start_half_ended(int rank) {
    const pid_t child = fork();
    if (child == 0) {
      std::thread([this, rank] { form(rank); }).detach();
      syscall(SYS_exit, 0);
    }
    pids_[rank] = child;
    store_->get(str("shared_memory/", rank), soon());
    const std::string path = str("/proc/", child, "/fd/0");
    for (int file = 0; (file = open(path.c_str(), O_PATH | O_CLOEXEC)) >= 0; sched_yield()) close(file);
  }
  void end(int rank) { waitpid(pids_[rank], nullptr, 0); }
  void kill_rank(int rank) {
    kill(pids_[rank], SIGKILL);
    end(rank);
  }
  std::string outcome(int rank) { return store_->get(str("outcome/", rank), soon()); }

  [[noreturn]] void form(int rank, Duration timeout = std::chrono::seconds(60)) {
    std::string outcome = "formed";
    try {
      GroupOptions options;
      options.rank = rank;
      options.size = kSize;
      options.timeout = timeout;
      const Engine engine(*store_, options, nullptr);
    } catch (const PeerLostError& e) {
      outcome = str("lost ", join(e.ranks(), " "));
    } catch (const std::exception& e) {
      outcome = e.what();
    }
    store_->set(str("outcome/", rank), outcome);
    _exit(0);
  }

  std::unique_ptr<SharedStore> store_ = SharedStore::create();
  pid_t pids_[kSize] = {};
};

TEST_F(EngineStart, AllRanksNameRankKilledBeforeOthersJoined) {
  start(kVictim);
  kill_rank(kVictim);
  start(0);
  start(1);
  for (const int rank : {0, 1}) {
    end(rank);
    EXPECT_EQ(outcome(rank), "lost 2");
  }
  // This rank finds ranks 0 and 1 ended too, and finds them first.
  start(3);
  end(3);
  EXPECT_EQ(outcome(3), "lost 2");
}

TEST_F(EngineStart, AllRanksNameRankKilledWhileOthersWait) {
  for (int rank = 0; rank < 3; ++rank) start(rank);
  kill_rank(kVictim);
  start(3);
  for (const int rank : {0, 1, 3}) {
    end(rank);
    EXPECT_EQ(outcome(rank), "lost 2") << rank;
  }
}

// The kernel closes its files before it counts as ended: ranks that start in between wait for its end.
TEST_F(EngineStart, AllRanksNameEndingRank) {
  start_half_ended(kVictim);
  for (const int rank : {0, 1, 3}) start(rank);
  kill_rank(kVictim);
  for (const int rank : {0, 1, 3}) {
    end(rank);
    EXPECT_EQ(outcome(rank), "lost 2") << rank;
  }
}

// A failure of another type: the other ranks report the first rank's message.
TEST_F(EngineStart, ARankThatCannotStartIsExplained) {
  store_->set("shared_memory/1", "something else");
  start(0);
  end(0);
  EXPECT_NE(outcome(0).find("announced itself as 'something else'"), std::string::npos) << outcome(0);
  start(3);
  end(3);
  EXPECT_NE(outcome(3).find("rank 0 failed"), std::string::npos) << outcome(3);
  EXPECT_NE(outcome(3).find("announced itself as 'something else'"), std::string::npos) << outcome(3);
}

// A rank that does not end is waited for only within the group's timeout: rank 2, which has less time, gives
// up while rank 1, which started before it, still waits for that end.
TEST_F(EngineStart, DoesNotWaitForRankBeyondTheTimeout) {
  start_half_ended(0);
  start(1);
  start(2, std::chrono::milliseconds(100));
  end(2);
  EXPECT_NE(outcome(2), "lost 0");
  kill_rank(0);
  end(1);
  EXPECT_EQ(outcome(1), "lost 0");
}

// The rank has announced itself and maps no memory: only its identity is known.
TEST_F(EngineStart, NamesRankStoppedInTheRendezvous) {
  start(kVictim);
  kill(pids_[kVictim], SIGSTOP);
  for (const int rank : {1, 3}) {
    start(rank);
    while (!tests::is_sleeping(pids_[rank])) sched_yield();
  }
  start(0, std::chrono::milliseconds(500));
  for (const int rank : {0, 1, 3}) {
    end(rank);
    EXPECT_NE(outcome(rank).find("missing: rank 2"), std::string::npos) << outcome(rank);
  }
  kill_rank(kVictim);
}

}  // namespace
}  // namespace rondo::shared_memory::engine_start_test
