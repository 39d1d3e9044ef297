#include "rondo/launch/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "rondo/base/error.h"
#include "rondo/launch/worker_environment.h"
#include "tests/errors.h"

namespace rondo::stop_signals_test {
namespace {

using rondo::testing::expect_facts;
using rondo::testing::message_of;
using Signals = std::set<int>;

TEST(StopSignals, AreReadByName) {
  EXPECT_EQ(launch::parse_signals("SIGTERM, USR1", "--signals-to-handle"), (Signals{SIGTERM, SIGUSR1}));
  EXPECT_EQ(launch::parse_signals("", "--signals-to-handle"), Signals{});
  EXPECT_EQ(launch::parse_signals(launch::signal_list({SIGHUP, SIGUSR2}), ""), (Signals{SIGHUP, SIGUSR2}));
  for (const char* list : {"KILL", "STOP", "SIGCHLD", "TERM,", "12", "NOSUCH"}) {
    expect_facts(message_of<UsageError>([&] { launch::parse_signals(list, "--signals-to-handle"); }),
                 {"--signals-to-handle", list});
  }
}

TEST(StopSignals, IncludeRequestedOnesAndUsr1UnderSlurm) {
  EXPECT_EQ(launch::stop_signals({}), (Signals{SIGTERM, SIGINT, SIGHUP}));
  EXPECT_EQ(launch::stop_signals({{"SLURM_JOB_ID", "7"}}), (Signals{SIGTERM, SIGINT, SIGHUP, SIGUSR1}));
  EXPECT_EQ(launch::stop_signals({{launch::kStopSignalsVariable, "SIGUSR2"}}),
            (Signals{SIGTERM, SIGINT, SIGHUP, SIGUSR2}));
  EXPECT_THROW(launch::stop_signals({{launch::kStopSignalsVariable, "HELLO"}}), UsageError);
  launch::WorkerPlace place;
  place.stop_signals = "SIGUSR2";
  EXPECT_EQ(launch::stop_signals(launch::worker_environment({}, place)).count(SIGUSR2), 1U);
}

TEST(StopSignals, AreDeliveredWhenTheyAreReleased) {
  static volatile std::sig_atomic_t arrived = 0;
  const auto former = std::signal(SIGUSR2, [](int) { arrived = 1; });
  launch::hold_signals({SIGUSR2});
  std::raise(SIGUSR2);
  EXPECT_EQ(arrived, 0);
  launch::release_signals({SIGUSR2});
  EXPECT_EQ(arrived, 1);
  std::signal(SIGUSR2, former);
}

TEST(StopSignals, AreHeldOnlyForProgramsThatReleaseThem) {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto with_program = [&](const std::string& name, const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {own + "/" + name};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return launch::releases_signals(command);
  };
  // The programs are in this test's folder.
  if (!std::filesystem::exists(own + "/rondo-train"))
    GTEST_SKIP() << "rondo-train is not built beside this test";
  EXPECT_TRUE(with_program("rondo-train", {"--data", "x"}));
  EXPECT_TRUE(with_program("rondo", {"train"}));
  EXPECT_FALSE(with_program("rondo", {"evaluate"}));
  EXPECT_FALSE(with_program("rondo", {}));
  EXPECT_FALSE(launch::releases_signals({"/bin/sh", own + "/rondo-train"}));
  EXPECT_FALSE(launch::releases_signals({}));
}

}  // namespace
}  // namespace rondo::stop_signals_test
