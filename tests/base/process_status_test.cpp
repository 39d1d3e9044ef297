#include "rondo/base/process_status.h"

#include <gtest/gtest.h>
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

TEST(ProcessStatus, ReadsThisThread) {
  const auto status = ProcessStatus::read(gettid());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->state(), 'R');
  EXPECT_EQ(status->parent(), getppid());
}

}  // namespace
}  // namespace rondo::process_status_test
