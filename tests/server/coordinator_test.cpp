#include "rondo/server/coordinator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/control/connection.h"
#include "rondo/control/message.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::coordinator_test {
namespace {

using namespace server;
using control::JobSecret;
using testing::expect_facts;
using testing::message_of;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

RemoteFunctions functions() {
  auto sum = std::make_shared<int>(0);
  return {{"double", [](const std::string& text) { return text + text; }},
          {"add", [sum](const std::string& text) { return std::to_string(*sum += std::stoi(text)); }},
          {"fail", [](const std::string& text) -> std::string { throw Error("cannot " + text); }},
          // Kills its first worker.
          {"die once", [](const std::string& file) {
             const int made = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
             if (made >= 0) raise(SIGKILL);
             return std::string("alive");
           }}};
}

// Workers as processes, forked before any threads exist.
class Workers {
 public:
  Workers(const std::string& address, const std::string& secret, int count) {
    for (int worker = 0; worker < count; ++worker) start(address, secret, worker);
  }
  ~Workers() {
    for (const pid_t worker : pids_) {
      kill(worker, SIGKILL);
      waitpid(worker, nullptr, 0);
    }
  }
  void start(const std::string& address, const std::string& secret, int worker) {
    pids_.push_back(fork());
    if (pids_.back() != 0) return;
    try {
      work_for_coordinator(address, secret, worker, functions());
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  const std::vector<pid_t>& pids() const { return pids_; }

 private:
  std::vector<pid_t> pids_;
};

TEST(Coordinator, GivesWhatFunctionsReturn) {
  const std::string secret = JobSecret::make().text();
  Coordinator coordinator(secret);
  const Workers workers(coordinator.address(), secret, 2);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 200; ++i) values.push_back(coordinator.schedule("double", std::to_string(i)));
  coordinator.join();
  EXPECT_TRUE(coordinator.done());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(values[i].fetch(soon()), std::to_string(i) + std::to_string(i));
  // Functions keep state per worker.
  EXPECT_GT(std::stoi(coordinator.schedule("add", "5").fetch(soon())), 4);
}

TEST(Coordinator, ThrowsAnErrorOnceAndCancelsTheRest) {
  const std::string secret = JobSecret::make().text();
  Coordinator coordinator(secret);
  const RemoteValue bad = coordinator.schedule("fail", "swim");
  std::vector<RemoteValue> others;
  for (int i = 0; i < 50; ++i) others.push_back(coordinator.schedule("double", "x"));
  const Workers workers(coordinator.address(), secret, 1);
  expect_facts(message_of<Error>([&] { coordinator.join(); }), {"worker 0", "fail", "cannot swim"});
  EXPECT_THROW(bad.fetch(soon()), Error);
  EXPECT_THROW(others.back().fetch(soon()), CancelledError);
  EXPECT_EQ(coordinator.schedule("double", "y").fetch(soon()), "yy");
  coordinator.join();
  expect_facts(message_of<Error>([&] {
                 coordinator.schedule("nothing", "");
                 coordinator.join();
               }),
               {"nothing"});
}

TEST(Coordinator, ReschedulesFunctionOfLostWorker) {
  const TemporaryDirectory directory;
  const std::string secret = JobSecret::make().text();
  Coordinator coordinator(secret);
  const Workers workers(coordinator.address(), secret, 2);
  const RemoteValue value = coordinator.schedule("die once", (directory / "killed").string());
  EXPECT_EQ(value.fetch(soon()), "alive");
  coordinator.join();
  EXPECT_EQ(coordinator.lost_workers(), 1U);
  EXPECT_EQ(coordinator.schedule("double", "b").fetch(soon()), "bb");
}

// A worker of another host, simulated by the test's messages.
class DistantWorker {
 public:
  DistantWorker(const std::string& address, const std::string& secret, std::uint32_t number)
      : number_(number),
        connection_(address, JobSecret::parse(secret, "test"), "a worker", "the coordinator") {}

  // Sends a report. Returns the number of the next call, or 0 for an instruction to wait.
  std::uint64_t report(std::uint64_t finished, const std::string& result) {
    control::MessageWriter writer;
    writer.number(std::uint32_t{0x72636f31})
        .number(number_)
        .text("incarnation " + std::to_string(number_))
        .number(std::int64_t{1})
        .text("another host")
        .number(finished)
        .number(std::uint32_t{0})
        .text(result);
    const std::string answer = connection_.ask(writer.take(), soon());
    control::MessageReader reader(answer, "the coordinator");
    return reader.number<std::uint32_t>("order") == 0 ? reader.number<std::uint64_t>("call") : 0;
  }

 private:
  std::uint32_t number_;
  control::Connection connection_;
};

TEST(Coordinator, TakesResultOfALongSilentFunction) {
  const std::string secret = JobSecret::make().text();
  Coordinator coordinator(secret, {.silence = std::chrono::milliseconds(200)});
  const Deadline limit = soon();
  DistantWorker slow(coordinator.address(), secret, 0), other(coordinator.address(), secret, 1);
  const RemoteValue value = coordinator.schedule("long", "");
  ASSERT_EQ(slow.report(0, ""), 1U);
  while (coordinator.lost_workers() == 0 && !limit.passed()) std::this_thread::yield();
  ASSERT_EQ(coordinator.lost_workers(), 1U);
  // The call is in the queue again.
  EXPECT_EQ(slow.report(1, "done"), 0U);
  EXPECT_EQ(value.fetch(soon()), "done");
  coordinator.join();

  const RemoteValue second = coordinator.schedule("long", "");
  ASSERT_EQ(slow.report(1, "done"), 2U);
  while (other.report(0, "") != 2 && !limit.passed()) std::this_thread::yield();
  ASSERT_FALSE(limit.passed());
  // Another worker has the call now and finishes later.
  EXPECT_EQ(slow.report(2, "first"), 0U);
  EXPECT_EQ(second.fetch(soon()), "first");
  coordinator.join();
  EXPECT_EQ(other.report(2, "later"), 0U);
  EXPECT_EQ(second.fetch(soon()), "first");

  // A result for a call that was never given to the worker is ignored.
  const RemoteValue third = coordinator.schedule("long", "");
  EXPECT_EQ(slow.report(3, "of another coordinator"), 3U);
  EXPECT_FALSE(third.is_ready());
}

TEST(Coordinator, RefusesASecretThatIsNone) {
  expect_facts(message_of<UsageError>([] { Coordinator coordinator("short"); }),
               {"the coordinator's secret"});
}

TEST(Coordinator, BoundsItsQueue) {
  const std::string secret = JobSecret::make().text();
  Coordinator coordinator(secret, {.longest_queue = 4});
  const Workers workers(coordinator.address(), secret, 1);
  std::vector<RemoteValue> values;
  for (int i = 0; i < 40; ++i) values.push_back(coordinator.schedule("double", "z"));  // blocks sometimes
  coordinator.join();
  EXPECT_EQ(values.back().fetch(soon()), "zz");
}

}  // namespace
}  // namespace rondo::coordinator_test
