#include "rondo/launch/spawn.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/identity.h"
#include "rondo/launch/process_tree.h"
#include "tests/errors.h"

namespace rondo::spawn_test {
namespace {

// Memory shared with forked processes.
struct Shared {
  std::atomic<int> started{0};
  std::atomic<pid_t> pids[16] = {};
};

class Spawn : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
  }
  void TearDown() override { munmap(shared_, sizeof(Shared)); }

  void note_pid() const { shared_->pids[shared_->started++] = getpid(); }

  // Expects that all processes that noted their pid have exited or are zombies.
  void expect_all_gone() const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    for (const auto& pid : shared_->pids) {
      while (pid > 0 && kill(pid, 0) == 0) {
        ASSERT_FALSE(deadline.passed()) << pid;
        std::this_thread::yield();
      }
    }
  }

  Shared* shared_ = nullptr;
};

TEST_F(Spawn, RanksKnowTheirPlaceAndShareAStore) {
  spawn(
      [](int rank) {
        const env::Identity self = env::discover_process();
        if (self.rank != rank || self.world_size != 3 || self.launcher != "rondo") throw Error("wrong place");
        const auto store = SharedStore::open(std::atoi(std::getenv(kStoreDescriptorVariable)));
        store->set(str("rank", rank), "here");
        const Wait wait{Deadline::after(std::chrono::seconds(60)), nullptr};
        for (int other = 0; other < 3; ++other) store->get(str("rank", other), wait);
      },
      3);
  EXPECT_EQ(std::getenv("RANK"), nullptr);
}

TEST_F(Spawn, TheRootCauseIsThrown) {
  try {
    spawn(
        [this](int rank) {
          note_pid();
          if (rank == 1) throw DataError("the file is empty");
          while (true) pause();
        },
        3);
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    // The exit code of the first failure, and the signal that stopped the others.
    testing::expect_facts(message, {"rank 1", "the file is empty", "code 1", "rank 0", "rank 2", "SIGTERM"});
  }
  expect_all_gone();
}

TEST_F(Spawn, ASignalIsNamed) {
  try {
    spawn([](int rank) { kill(rank == 0 ? getpid() : 0, rank == 0 ? SIGKILL : 0); }, 2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("SIGKILL"), std::string::npos) << error.what();
  }
}

TEST_F(Spawn, AnExitCodeCountsWithoutAnException) {
  EXPECT_THROW(spawn([](int) { std::_Exit(4); }, 1), Error);
}

TEST_F(Spawn, NeedsAtLeastOneProcess) {
  EXPECT_THROW(spawn([](int) {}, 0), UsageError);
  EXPECT_THROW(spawn([](int) {}, -1), UsageError);
}

TEST_F(Spawn, OtherChildrenOfTheProgramAreLeftAlone) {
  const pid_t other = fork();
  if (other == 0) {
    while (true) pause();
  }
  EXPECT_THROW(spawn([](int) { throw Error("fails"); }, 2), Error);
  EXPECT_EQ(kill(other, 0), 0);
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST_F(Spawn, NothingSurvivesTheKillOfTheProgram) {
  const pid_t program = fork();
  if (program == 0) {
    spawn(
        [this](int) {
          if (fork() == 0) setsid();  // a grandchild outside the session
          note_pid();
          while (true) pause();
        },
        2);
    _exit(0);
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (shared_->started < 4 && !deadline.passed()) std::this_thread::yield();
  ASSERT_EQ(shared_->started, 4);
  kill(program, SIGKILL);
  waitpid(program, nullptr, 0);
  expect_all_gone();
}

// Calls `body` in a separate process with a time limit. Returns its exit code, or 128 + signal.
int in_a_program(const std::function<int()>& body) {
  const pid_t program = fork();
  if (program == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(program, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Daemons ignore SIGCHLD, and their children inherit this.
TEST_F(Spawn, GetsTheRanksEndsWhereSigchldIsIgnored) {
  const int code = in_a_program([] {
    std::signal(SIGCHLD, SIG_IGN);
    const pid_t other = fork();
    if (other == 0) pause();
    std::string message;
    try {
      spawn(
          [other](int) {
            kill(other, SIGKILL);
            std::_Exit(7);
          },
          2);
    } catch (const Error& error) {
      message = error.what();
    }
    // Restored: exiting children leave no zombies, also those that exited meanwhile.
    struct sigaction after {};
    sigaction(SIGCHLD, nullptr, &after);
    const bool no_zombie = waitpid(other, nullptr, 0) < 0;
    return message.find("exited with code 7") == std::string::npos ? 1
           : after.sa_handler != SIG_IGN                           ? 2
                                                                   : (no_zombie ? 0 : 3);
  });
  EXPECT_EQ(code, 0);
}

// The first thread does not block SIGCHLD and may receive it.
TEST_F(Spawn, ReturnsWhereAnotherThreadMayTakeSigchld) {
  const int code = in_a_program([] {
    std::jthread([] { spawn([](int) {}, 2); }).join();
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST(ProcessTree, KillsAForkingFamily) {
  const pid_t program = fork();
  if (program == 0) {
    launch::become_subreaper();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    for (int i = 0; i < 3; ++i) {
      if (fork() != 0) continue;
      setsid();
      if (fork() != 0) _exit(0);  // its child becomes an orphan
      while (true) pause();
    }
    const bool all = launch::kill_descendants(Deadline::after(std::chrono::seconds(60)));
    _exit(all && launch::descendants().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(program, &status, 0), program);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace rondo::spawn_test
