#include "rondo/launch/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>

#include "rondo/env/launcher_files.h"
#include "rondo/launch/failure.h"
#include "rondo/launch/job_files.h"
#include "rondo/launch/process_tree.h"
#include "tests/temporary_directory.h"

namespace rondo::launch::supervisor_test {
namespace {

// Memory shared with forked processes.
struct Flags {
  std::atomic<bool> failed_once{false};
  std::atomic<bool> ready{false};
  std::atomic<pid_t> worker{0};
};

class Supervisor : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory = mmap(nullptr, sizeof(Flags), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    flags_ = new (memory) Flags;
  }
  void TearDown() override { munmap(flags_, sizeof(Flags)); }

  // Calls supervise() in a separate process, as it requires. Returns the result of `judge` for the end, below
  // 100. Output goes to the file `console` if it is given.
  static int supervised(const std::vector<WorkerSpec>& specs,
                        const std::function<int(const AttemptEnd&)>& judge, const std::string& console = "",
                        const SupervisorOptions& options = {}) {
    const pid_t guardian = fork();
    if (guardian == 0) {
      alarm(60);
      if (!console.empty()) dup2(open(console.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
      become_subreaper();
      _exit(judge(supervise(specs, options)));
    }
    int status = 0;
    waitpid(guardian, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  Flags* flags_ = nullptr;
};

TEST_F(Supervisor, ReportsProcessesThatAreNotRestarted) {
  std::vector<WorkerSpec> specs(4);
  for (int rank = 0; rank < 4; ++rank) specs[static_cast<std::size_t>(rank)].rank = rank;
  const EndedWorkersFile file(3);
  SupervisorOptions options;
  options.on_end = [&](int rank) { file.note(rank); };
  // Rank 0 exits after the others, when it finds them in the file.
  specs[0].function = [&] {
    const env::EndedWorkers ended(file.path());
    while (!ended.any_of(1, 1)) usleep(100);
    while (!ended.any_of(2, 1)) usleep(100);
    return ended.any_of(0, 1) || ended.all() ? 1 : 0;
  };
  specs[1].function = [] { return 0; };
  specs[2].policy = {.on_failure = OnFailure::restart, .restarts = 1};
  specs[2].function = [&] {
    if (!flags_->failed_once.exchange(true)) return 1;
    const env::EndedWorkers ended(file.path());
    return ended.any_of(2, 1) ? 1 : 0;
  };
  specs[3].policy = {.on_failure = OnFailure::go_on};
  specs[3].function = [] { return 1; };  // not a worker, like an evaluator
  const int code = supervised(
      specs,
      [&](const AttemptEnd& end) {
        return end.stopped.empty() && env::EndedWorkers(file.path()).all() ? 0 : 1;
      },
      "", options);
  EXPECT_EQ(code, 0);
}

TEST_F(Supervisor, KillsWorkersSuspendedForTooLong) {
  std::vector<WorkerSpec> specs(2);
  specs[0].function = [this] {
    while (!flags_->ready) usleep(100);
    raise(SIGSTOP);
    return 0;
  };
  specs[1].rank = 1;
  specs[1].function = [this] {  // it saves its state on SIGTERM
    std::signal(SIGTERM, [](int) { _exit(3); });
    flags_->ready = true;
    while (true) pause();
    return 0;
  };
  SupervisorOptions options;
  options.patience_of_others = [] { return std::chrono::milliseconds(1); };
  const int failures = supervised(
      specs,
      [&](const AttemptEnd& end) {
        const auto root = root_cause(end, specs);
        if (root != std::size_t{0}) return 1;
        const std::string text = describe_failure(end, specs, *root, end.workers[0]->end->at);
        return text.find("suspended (SIGSTOP) for 1 s") == std::string::npos ||
                       end.workers[1]->end->exit_code != 3 || job_exit_code(end, root) != 128 + SIGKILL
                   ? 2
                   : 0;
      },
      "", options);
  EXPECT_EQ(failures, 0);
}

TEST_F(Supervisor, LeavesWorkersThatResumeInTime) {
  std::vector<WorkerSpec> specs(2);
  specs[0].function = [this] {
    flags_->worker = getpid();
    raise(SIGSTOP);
    return 0;
  };
  specs[1].rank = 1;
  specs[1].function = [] { return 0; };
  int looks = 0;
  SupervisorOptions options;
  options.patience_of_others = [&] {
    if (++looks > 1 && flags_->worker != 0) kill(flags_->worker, SIGCONT);
    return std::chrono::minutes(5);
  };
  EXPECT_EQ(supervised(
                specs, [](const AttemptEnd& end) { return job_exit_code(end, std::nullopt); }, "", options),
            0);
}

TEST_F(Supervisor, BlamesNobodyForAFailureThatWasForgiven) {
  const TemporaryDirectory directory;
  std::vector<WorkerSpec> specs(2);
  specs[0].function = [this] {
    while (!flags_->ready) usleep(100);
    return 7;
  };
  specs[1].rank = 1;
  specs[1].error_file = directory / "error.json";
  specs[1].policy = {.on_failure = OnFailure::restart, .restarts = 1};
  specs[1].function = [this, file = specs[1].error_file] {
    if (!flags_->failed_once.exchange(true)) {
      std::ofstream(file) << R"({"message":"of old"})";
      std::filesystem::last_write_time(
          file, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(10));
      return 1;
    }
    std::signal(SIGTERM, [](int) { _exit(9); });
    flags_->ready = true;
    while (true) pause();
  };
  const int code = supervised(specs, [&](const AttemptEnd& end) {
    const auto root = root_cause(end, specs);
    return root == std::size_t{0} ? job_exit_code(end, root) : 99;
  });
  EXPECT_EQ(code, 7);
}

TEST_F(Supervisor, KeepsTheLogOfTheStartThatFailed) {
  const TemporaryDirectory directory;
  std::vector<WorkerSpec> specs(1);
  specs[0].policy = {.on_failure = OnFailure::restart, .restarts = 1};
  specs[0].out = {.route = StreamSpec::Route::file, .log_path = directory / "stdout.log"};
  specs[0].err = {.route = StreamSpec::Route::pipe, .shown = false, .log_path = directory / "stderr.log"};
  specs[0].function = [this] {
    const bool again = flags_->failed_once.exchange(true);
    std::fputs(again ? "second " : "first ", stdout);
    std::fputs(again ? "second " : "first ", stderr);
    return again ? 0 : 1;
  };
  EXPECT_EQ(supervised(specs, [](const AttemptEnd&) { return 0; }), 0);
  for (const char* const name : {"stdout.log", "stderr.log"}) {
    std::ifstream file(directory / name);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(text, "first second ") << name;
  }
}

// Even if the stream never ends, because a process outside the job holds it open.
TEST_F(Supervisor, ShowsLastOutputOfTheFailedStart) {
  const TemporaryDirectory directory;
  const std::string console = directory / "console";
  const pid_t holder = fork();
  if (holder == 0) {
    alarm(60);
    while (flags_->worker == 0) usleep(100);
    const std::string stream = "/proc/" + std::to_string(flags_->worker.load()) + "/fd/1";
    if (open(stream.c_str(), O_WRONLY) < 0) _exit(1);
    flags_->ready = true;
    while (true) pause();
  }
  std::vector<WorkerSpec> specs(1);
  specs[0].policy = {.on_failure = OnFailure::restart, .restarts = 1};
  specs[0].out.route = StreamSpec::Route::pipe;
  specs[0].function = [this] {
    if (flags_->failed_once.exchange(true)) return 0;
    flags_->worker = getpid();
    while (!flags_->ready) usleep(100);
    std::fputs("last words", stdout);
    return 1;
  };
  const auto judge = [](const AttemptEnd&) { return 0; };
  EXPECT_EQ(supervised(specs, judge, console), 0);
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  std::ifstream file(console);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, "[rank 0] last words\n");
}

}  // namespace
}  // namespace rondo::launch::supervisor_test
