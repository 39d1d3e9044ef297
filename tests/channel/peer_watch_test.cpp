// Detection of ended processes, also while one of them is ending.
#include "rondo/channel/waiting.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "rondo/base/text.h"

namespace rondo {
namespace {

// Starts a process whose first thread has exited and whose second one stays: other processes cannot open its
// files, but it has not ended. A process that is ended by a signal is in this state for a moment.
pid_t start_half_ended_process() {
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread([] {
      while (true) pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  const std::string path = str("/proc/", pid, "/fd/0");
  while (true) {
    const int file = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (file < 0) return pid;
    close(file);
    sched_yield();
  }
}

TEST(PeerWatch, WaitsForAProcessThatIsEnding) {
  const pid_t pid = start_half_ended_process();
  PeerWatch watch;
  watch.add(7, pid);
  EXPECT_TRUE(watch.ended().empty());
  std::thread killer([pid] { kill(pid, SIGKILL); });
  EXPECT_EQ(watch.ended(std::chrono::seconds(60)), std::vector<int>{7});
  killer.join();
  waitpid(pid, nullptr, 0);
}

TEST(PeerWatch, DoesNotWaitWhereOneHasEndedBefore) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  PeerWatch watch;
  watch.add(3, gone);
  watch.add(4, getppid());
  EXPECT_EQ(watch.ended(std::chrono::hours(1)), std::vector<int>{3});
}

}  // namespace
}  // namespace rondo
