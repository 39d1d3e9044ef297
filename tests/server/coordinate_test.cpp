#include "rondo/server/coordinate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/control/connection.h"
#include "rondo/control/secret.h"
#include "rondo/env/launcher_files.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::coordinate_test {
namespace {

using namespace server;
using testing::expect_facts;
using testing::message_of;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// The environments of a chief and workers under `rondo run --workers N`.
class Job {
 public:
  explicit Job(int workers) {
    const control::JobSecret secret = control::JobSecret::make();
    std::ofstream(secret_) << secret.text();
    std::filesystem::permissions(secret_, std::filesystem::perms::owner_read);
    std::deque<control::Listener> ports;  // free while these objects live
    std::string addresses;
    for (int worker = 0; worker < workers; ++worker) {
      ports.emplace_back("127.0.0.1:0", secret);
      addresses += std::string(worker > 0 ? "," : "") + "\"" + ports.back().address() + "\"";
    }
    cluster_ = "{\"worker\":[" + addresses + "]}";
  }

  env::EnvironmentMap environment(int worker) const {
    return {{control::kSecretFileVariable, secret_.string()},
            {"TF_CONFIG", "{\"cluster\":" + cluster_ + R"(,"task":{"type":"worker","index":)" +
                              std::to_string(worker) + "}}"}};
  }

 private:
  TemporaryDirectory directory_;
  std::filesystem::path secret_ = directory_ / "secret";
  std::string cluster_;
};

void wait_for(const std::string& file) {
  const Deadline limit = soon();
  while (access(file.c_str(), F_OK) != 0 && !limit.passed()) usleep(1000);
}

const RemoteFunctions kFunctions = {{"double", [](const std::string& text) { return text + text; }},
                                    {"process", [](const std::string&) { return std::to_string(getpid()); }},
                                    {"wait", [](const std::string& folder) {
                                       std::ofstream(folder + "/begun");
                                       wait_for(folder + "/go");
                                       return std::string();
                                     }}};

// Runs a worker in a separate process, which exits with 0 when the chief tells it to end.
pid_t start_worker(const Job& job, int worker) {
  const pid_t process = fork();
  if (process != 0) return process;
  try {
    coordinate(
        kFunctions, [](Coordinator&) { _exit(2); }, {}, job.environment(worker));
    _exit(0);
  } catch (...) {
    _exit(1);
  }
}

int exit_code(pid_t process) {
  int status = 0;
  return waitpid(process, &status, 0) == process && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Coordinate, AloneCallsFunctionsInThisProcess) {
  std::vector<std::string> results;
  coordinate(kFunctions,
             [&](Coordinator& coordinator) {
               results.push_back(coordinator.schedule("double", "a").fetch(soon()));
               results.push_back(coordinator.schedule("process", "").fetch(soon()));
             },
             {}, {});
  EXPECT_EQ(results, (std::vector<std::string>{"aa", std::to_string(getpid())}));
}

TEST(Coordinate, PassesErrorsOn) {
  const auto work = [](Coordinator& coordinator) { coordinator.schedule("nothing", ""); };
  expect_facts(message_of<Error>([&] { coordinate(kFunctions, work, {}, {}); }), {"nothing", "worker 0"});
  const auto fails = [](Coordinator&) { throw DataError("of the program"); };
  expect_facts(message_of<DataError>([&] { coordinate(kFunctions, fails, {}, {}); }), {"of the program"});
}

TEST(Coordinate, WorkersCallWhatTheChiefSchedules) {
  const Job job(3);
  const std::vector<pid_t> workers = {start_worker(job, 1), start_worker(job, 2)};
  std::string process;
  coordinate(
      kFunctions,
      [&](Coordinator& coordinator) { process = coordinator.schedule("process", "").fetch(soon()); }, {},
      job.environment(0));
  EXPECT_TRUE(process == std::to_string(workers[0]) || process == std::to_string(workers[1])) << process;
  for (const pid_t worker : workers) EXPECT_EQ(exit_code(worker), 0);
}

TEST(Coordinate, WorkerEndsAfterItsLongFunction) {
  const Job job(2);
  const TemporaryDirectory directory;
  const pid_t worker = start_worker(job, 1);
  std::jthread go;
  const auto fails = [&](Coordinator& coordinator) {
    coordinator.schedule("wait", directory.path().string());
    wait_for(directory / "begun");
    // Longer than the wait for idle workers.
    go = std::jthread([&] {
      usleep(500'000);
      std::ofstream(directory / "go");
    });
    throw DataError("of the program");
  };
  EXPECT_THROW(coordinate(kFunctions, fails, {}, job.environment(0)), DataError);
  EXPECT_EQ(exit_code(worker), 0);
}

TEST(Coordinate, NoWorkerIsLeft) {
  const Job job(2);
  const TemporaryDirectory directory;
  std::ofstream(directory / "ended") << std::string("\0\1", 2);
  env::EnvironmentMap chief = job.environment(0);
  chief[env::kEndedWorkersVariable] = (directory / "ended").string();
  const auto work = [](Coordinator& coordinator) { coordinator.schedule("double", "a").fetch(soon()); };
  expect_facts(message_of<Error>([&] { coordinate(kFunctions, work, {}, chief); }), {"no worker is left"});
}

TEST(Coordinate, RefusesRolesThatItHasNot) {
  const auto work = [](Coordinator&) {};
  env::EnvironmentMap server = {
      {"TF_CONFIG", R"({"cluster":{"worker":["a:1","a:2"],"ps":["a:3"]},"task":{"type":"ps","index":0}})"}};
  expect_facts(message_of<UsageError>([&] { coordinate(kFunctions, work, {}, server); }),
               {"role ps", "rondo run --workers"});
  server["TF_CONFIG"] = R"({"cluster":{"worker":["a:1","a:2"]},"task":{"type":"worker","index":0}})";
  expect_facts(message_of<UsageError>([&] { coordinate(kFunctions, work, {}, server); }),
               {"RONDO_SECRET_FILE"});
}

}  // namespace
}  // namespace rondo::coordinate_test
