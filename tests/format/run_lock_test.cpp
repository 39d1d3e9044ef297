#include "rondo/format/run_directory.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <optional>

#include "rondo/base/error.h"
#include "tests/temporary_directory.h"

namespace rondo::run_lock_test {
namespace {

namespace fs = std::filesystem;

TEST(RunLock, RefusesSecondWriterAndNamesTheFirst) {
  const TemporaryDirectory directory;
  const fs::path run = directory / "runs/a";
  std::optional<RunLock> lock(run);
  try {
    RunLock second(run);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    const std::string holder = "process " + std::to_string(::getpid());
    EXPECT_NE(std::string(error.what()).find(holder), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(run.string()), std::string::npos) << error.what();
  }
  lock.reset();
  EXPECT_FALSE(fs::exists(run));  // nothing was written into it
  fs::create_directories(run);
  std::ofstream(run / "config.json") << "{}";
  { const RunLock again(run); }
  EXPECT_TRUE(fs::exists(run / "config.json"));
  EXPECT_FALSE(fs::exists(run / RunLock::file_name));
}

TEST(RunLock, TellsWhoReadsWhetherItIsHeld) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(RunLock::is_held(directory / "none"));
  {
    const RunLock lock(directory.path());
    EXPECT_TRUE(RunLock::is_held(directory.path()));
  }
  EXPECT_FALSE(RunLock::is_held(directory.path()));
  std::ofstream(directory / RunLock::file_name) << "process 1\n";
  EXPECT_FALSE(RunLock::is_held(directory.path())) << "a file is left, and nobody holds it";
}

// Processes that query the lock and are stopped at any time do not block a writer.
TEST(RunLock, WhoAsksKeepsNobodyOut) {
  const TemporaryDirectory directory;
  for (int turn = 0; turn < 50; ++turn) {
    std::ofstream(directory / RunLock::file_name) << "process 1\n";
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) RunLock::is_held(directory.path());
    }
    const timespec moment{0, 20'000 * (turn + 1)};
    ppoll(nullptr, 0, &moment, nullptr);
    kill(child, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_NO_THROW(RunLock(directory.path()));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

TEST(RunLock, ADeadProcessHoldsNothing) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock(directory.path());
    _exit(0);  // without running the destructor
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(directory / RunLock::file_name));
  const RunLock lock(directory.path());
}

TEST(RunLock, ALinkInItsPlaceIsNotFollowed) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "precious") << "text";
  fs::create_symlink(directory / "precious", directory / RunLock::file_name);
  EXPECT_THROW(RunLock(directory.path()), Error);
  EXPECT_EQ(fs::file_size(directory / "precious"), 4U);
}

}  // namespace
}  // namespace rondo::run_lock_test
