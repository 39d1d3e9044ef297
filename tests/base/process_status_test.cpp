#include "rondo/base/process_status.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rondo::process_status_test {
namespace {

TEST(ProcessStatus, ReadsProcessWithAnyName) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, ") T 1 (a b) Z");
    raise(SIGSTOP);
    while (true) pause();
  }
  int how = 0;
  waitpid(child, &how, WUNTRACED);
  const auto stopped = ProcessStatus::read(child);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->state(), 'T');
  EXPECT_EQ(stopped->parent(), getpid());
  EXPECT_EQ(stopped->field(5), static_cast<std::uint64_t>(getpgid(child)));
  EXPECT_EQ(stopped->field(1000), 0U);
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  EXPECT_EQ(ProcessStatus::read(child)->state(), 'Z');
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(ProcessStatus::read(child));
}

TEST(ProcessStatus, ReadsThisProcess) {
  for (const auto& status : {ProcessStatus::read(gettid()), ProcessStatus::read_own()}) {
    ASSERT_TRUE(status);
    EXPECT_EQ(status->state(), 'R');
    EXPECT_EQ(status->parent(), getppid());
    EXPECT_GT(status->field(49), status->field(48)) << "addresses of the arguments";
  }
}

// A program in a PID namespace without a /proc of its own, where its number is another process's.
TEST(ProcessStatus, ReadsThisProcessInNamespace) {
  const std::uint64_t arguments = ProcessStatus::read_own()->field(48);
  const pid_t program = fork();
  if (program == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(2);
    const pid_t child = fork();
    if (child == 0) {
      const auto status = ProcessStatus::read_own();
      _exit(getpid() == 1 && status && status->field(48) == arguments ? 0 : 1);
    }
    int how = 0;
    waitpid(child, &how, 0);
    _exit(WIFEXITED(how) ? WEXITSTATUS(how) : 3);
  }
  int how = 0;
  waitpid(program, &how, 0);
  if (WIFEXITED(how) && WEXITSTATUS(how) == 2) GTEST_SKIP() << "this kernel permits no PID namespaces here";
  EXPECT_EQ(how, 0);
}

}  // namespace
}  // namespace rondo::process_status_test
