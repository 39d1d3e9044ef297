#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/launch/failure.h"
#include "tests/temporary_directory.h"

namespace rondo::launch::failure_test {
namespace {

// Exits of workers in the order of `ends`, 10 ms apart.
struct Ended {
  int rank;
  int exit_code;
  int signal;
};

AttemptEnd attempt(const std::vector<Ended>& ends) {
  AttemptEnd end;
  end.workers.resize(ends.size());
  const auto now = std::chrono::system_clock::now();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    auto worker = std::make_unique<Worker>();
    worker->rank = ends[i].rank;
    WorkerEnd how;
    how.exit_code = ends[i].exit_code;
    how.signal = ends[i].signal;
    how.wall_time = now + std::chrono::milliseconds(10) * i;
    worker->end = how;
    end.workers[static_cast<std::size_t>(ends[i].rank)] = std::move(worker);
    end.order.push_back(ends[i].rank);
  }
  return end;
}

TEST(RootCause, IsTheFirstThatFailedByItself) {
  AttemptEnd end = attempt({{2, 0, 0}, {1, 0, SIGSEGV}, {0, 1, 0}});
  end.stopped = {0};
  const auto root = root_cause(end, std::vector<WorkerSpec>(3));
  ASSERT_TRUE(root.has_value());
  EXPECT_EQ(*root, 1U);
  EXPECT_EQ(job_exit_code(end, root), 128 + SIGSEGV);
}

TEST(RootCause, DeathByTheLaunchersSignalDoesNotCount) {
  AttemptEnd end = attempt({{0, 0, SIGTERM}, {1, 0, SIGKILL}});
  end.stopped = {0, 1};
  end.signal = SIGTERM;
  const auto root = root_cause(end, std::vector<WorkerSpec>(2));
  EXPECT_FALSE(root.has_value());
  EXPECT_EQ(job_exit_code(end, root), 128 + SIGTERM);
}

TEST(RootCause, ANoteOfAnEarlierFailureCounts) {
  AttemptEnd end = attempt({{1, 1, 0}, {0, 1, 0}});
  end.stopped = {0};
  std::vector<WorkerSpec> specs(2);
  const TemporaryDirectory directory;
  specs[0].error_file = directory / "error.json";
  std::ofstream(specs[0].error_file) << R"({"message":"early"})";
  std::filesystem::last_write_time(specs[0].error_file,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::seconds(1));
  EXPECT_EQ(root_cause(end, specs), std::size_t{0});
  std::filesystem::remove(specs[0].error_file);
  EXPECT_EQ(root_cause(end, specs), std::size_t{1});
}

// Rank 1 is killed. The busy launcher learns of it only after rank 0 has recorded the loss of its peer.
TEST(RootCause, LostPeerReportIsNotTheRootCause) {
  AttemptEnd end = attempt({{1, 0, SIGKILL}, {0, 1, 0}});
  std::vector<WorkerSpec> specs(2);
  const TemporaryDirectory directory;
  specs[0].error_file = directory / "error.json";
  const auto note_a_second_ago = [&](const std::exception& error) {
    setenv("TORCHELASTIC_ERROR_FILE", specs[0].error_file.c_str(), 1);
    record_failure(error);
    unsetenv("TORCHELASTIC_ERROR_FILE");
    std::filesystem::last_write_time(specs[0].error_file,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::seconds(1));
  };
  note_a_second_ago(PeerLostError("the process of rank 1 has ended", {1}));
  EXPECT_EQ(read_error_file(specs[0].error_file), "the process of rank 1 has ended");
  const auto root = root_cause(end, specs);
  EXPECT_EQ(root, std::size_t{1});
  EXPECT_EQ(job_exit_code(end, root), 128 + SIGKILL);
  note_a_second_ago(DataError("the file is empty"));
  EXPECT_EQ(root_cause(end, specs), std::size_t{0});
}

TEST(JobExitCode, TellsResumableFromStopped) {
  AttemptEnd end = attempt({{0, 3, 0}, {1, 0, 0}});
  end.signal = SIGTERM;
  EXPECT_EQ(job_exit_code(end, std::nullopt), 3);
  end = attempt({{0, 3, 0}, {1, 0, SIGTERM}});
  end.signal = SIGTERM;
  EXPECT_EQ(job_exit_code(end, std::nullopt), 128 + SIGTERM);
  end = attempt({{0, 0, 0}, {1, 0, 0}});
  end.signal = SIGINT;
  EXPECT_EQ(job_exit_code(end, std::nullopt), 0);
}

TEST(SignalName, NamesSignals) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
}

TEST(DescribeFailure, NamesTasksAndPreemption) {
  AttemptEnd end = attempt({{1, 3, 0}, {0, 0, SIGTERM}});
  end.stopped = {0};
  std::vector<WorkerSpec> specs(2);
  specs[0].task = "worker 0";
  specs[1].rank = 1;
  specs[1].task = "ps 0";
  std::string text = describe_failure(end, specs, 1, {});
  EXPECT_TRUE(text.starts_with("ps 0 (rank 1) on host ")) << text;
  EXPECT_NE(text.find("worker 0 (rank 0)"), std::string::npos) << text;
  EXPECT_NE(text.find("exited with code 3"), std::string::npos) << text;
  EXPECT_EQ(text.find("pre-empted"), std::string::npos) << text;
  end.workers[1]->end->preempted = true;
  text = describe_failure(end, specs, 1, {});
  EXPECT_NE(text.find("pre-empted"), std::string::npos) << text;
}

TEST(DescribeFailure, EscapesAndTruncatesForeignReports) {
  const AttemptEnd end = attempt({{0, 1, 0}});
  const TemporaryDirectory directory;
  std::vector<WorkerSpec> specs(1);
  specs[0].error_file = directory / "error.json";
  std::ofstream(specs[0].error_file) << R"({"message":"\u001b[2J)" << std::string(1 << 20, 'x') << R"("})";
  const std::string text = describe_failure(end, specs, 0, {});
  EXPECT_NE(text.find("\\x1b[2J"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 20'000U);
}

TEST(ErrorFile, IsWrittenAndRead) {
  const TemporaryDirectory directory;
  const std::string path = directory / "error.json";
  setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
  record_failure("bad \"quotes\"\nand bytes \xff");
  unsetenv("TORCHELASTIC_ERROR_FILE");
  EXPECT_EQ(read_error_file(path), "bad \"quotes\"\nand bytes \\xff");
  for (const char* text :
       {"", "{", "[]", "{}", R"({"message":7})", R"({"message":{"message":[]}})",
        R"({"message":{"extraInfo":1}})", R"({"message":{"extraInfo":{"peer_lost":1}}})"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(read_error_file(path), "") << text;
    EXPECT_FALSE(tells_of_lost_peer(path)) << text;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(read_error_file(path), "");
  record_failure("no launcher, no file");
}

}  // namespace
}  // namespace rondo::launch::failure_test
