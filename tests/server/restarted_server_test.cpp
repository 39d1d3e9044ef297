// A server that is killed and restarted with the memory of the previous one.
#include "rondo/server/cluster.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/server/protocol.h"
#include "rondo/server/remote_link.h"
#include "rondo/server/service.h"
#include "tests/errors.h"
#include "tests/server/servers.h"

namespace rondo::restarted_server_test {
namespace {

using namespace server;
using control::JobSecret;
using testing::expect_facts;
using testing::message_of;
using Values = std::vector<float>;
using server::tests::greet;
using server::tests::kVariables;
using server::tests::sgd;

// A server process that is killed and restarted with the same memory at the same address.
class KilledServer {
 public:
  explicit KilledServer(Duration silence = std::chrono::minutes(1)) : silence_(silence) {
    EXPECT_EQ(ftruncate(file_.descriptor(), 0), 0);
    start();
  }
  KilledServer(const KilledServer&) = delete;
  KilledServer& operator=(const KilledServer&) = delete;
  ~KilledServer() { stop(); }

  void restart() {
    stop();
    start();
  }

  // Returns the memory; valid after the chief's hello.
  ServerMemory memory() const {
    return ServerMemory::open(std::make_shared<SharedMemory>(SharedMemory::adopt(file_.descriptor())));
  }

  std::unique_ptr<control::Connection> connect(std::uint32_t worker) const {
    return std::make_unique<control::Connection>(address_, secret_, str("worker ", worker), "server 0");
  }

 private:
  void start() {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) serve(ends[1], parent);
    close(ends[1]);
    address_.clear();
    for (char next = 0; read(ends[0], &next, 1) == 1 && next != '\n';) address_ += next;
    close(ends[0]);
    ASSERT_NE(address_, "");
  }

  void serve(int end, pid_t parent) noexcept {
    Service service(
        {.address = address_, .memory = str("/proc/self/fd/", file_.descriptor()), .silence = silence_},
        secret_);
    const std::string address = service.address() + "\n";
    if (write(end, address.data(), address.size()) < 0) _exit(1);
    close(end);
    service.run([parent] { return getppid() != parent; });
    _exit(0);
  }

  void stop() const {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  SharedMemory file_ = SharedMemory::create("held", KiB(4));
  Duration silence_;
  JobSecret secret_ = JobSecret::make();
  std::string address_ = "127.0.0.1:0";
  pid_t process_ = 0;
};

template <class Is>
void wait_until(const Is& is) {
  const Deadline limit = Deadline::after(std::chrono::minutes(2));
  while (!is()) {
    ASSERT_FALSE(limit.passed());
    std::this_thread::yield();
  }
}

// Pushes from before the kill wait in the queues of two workers.
TEST(Service, AppliesPendingPushesOfOtherHosts) {
  const Deadline limit = Deadline::after(std::chrono::minutes(2));
  const ServerOptions options{.workers = 2};
  KilledServer server;
  RemoteLink chief(greet(server.connect(0), 0, options), kVariables, std::chrono::minutes(2));
  RemoteLink other(greet(server.connect(1), 1, options), kVariables, std::chrono::minutes(2));
  const ServerMemory memory = server.memory();
  memory.header().hold.store(7);
  wait_until([&] { return memory.header().held.load() == 7; });
  chief.push(2, Values{1, 0, 0}, sgd(1), limit);
  other.push(2, Values{0, 1, 0}, sgd(1), limit);
  server.restart();
  EXPECT_EQ(chief.figures().queued, 2U);
  Values bias(3);
  EXPECT_THROW(chief.pull(2, bias, Deadline::after(std::chrono::milliseconds(100))), TimeoutError);
  memory.header().hold.store(0);
  chief.pull(2, bias, limit);
  EXPECT_EQ(bias[0], -1.0F);
  chief.push(2, Values{0, 0, 1}, sgd(1), limit);
  other.push(2, Values{0, 1, 0}, sgd(1), limit);
  chief.flush(limit);
  other.flush(limit);
  chief.pull(2, bias, limit);
  EXPECT_EQ(bias, (Values{-1, -2, -1}));
}

// A push and the end of a step are requested again after their answers were lost with the server.
TEST(Service, DoesOnceWhatTheServerBeforeItDid) {
  const Deadline limit = Deadline::after(std::chrono::minutes(2));
  for (const Mode mode : {Mode::async, Mode::sync}) {
    KilledServer server;
    RemoteLink link(greet(server.connect(0), 0, {.mode = mode}), kVariables, std::chrono::minutes(2));
    link.begin_step(0, limit);
    control::MessageWriter push;
    write_head(push, {.operation = Operation::push, .worker = 0, .number = 100});
    Entry entry = sgd(1);
    entry.variable = 2;
    write_entry(push, entry);
    const Values gradient = {1, 2, 3};
    push.bytes(std::as_bytes(std::span(gradient)));
    control::MessageWriter end;
    write_head(end, {.operation = Operation::end_step, .worker = 0, .number = 101});
    end.number(std::uint64_t{0}).number(1.0);
    const std::string pushed = push.take(), ended = end.take();
    const std::string answer = server.connect(0)->ask(pushed, limit);
    server.restart();
    EXPECT_EQ(server.connect(0)->ask(pushed, limit), answer);
    // The other variables of the step.
    link.push(0, Values(30, 1.0F), sgd(1), limit);
    server.connect(0)->ask(ended, limit);
    server.restart();
    server.connect(0)->ask(ended, limit);
    link.flush(limit);
    Values bias(3), weight(30);
    link.pull(2, bias, limit);
    link.pull(0, weight, limit);
    EXPECT_EQ(bias, (Values{-1, -2, -3}));
    EXPECT_EQ(weight, Values(30, -1.0F));
    EXPECT_EQ(server.memory().worker(0).head.load(), 3U);
    const WorkerFigures figures = link.figures().workers[0];
    EXPECT_EQ(figures.clock, 1U);
    EXPECT_EQ(figures.late, 0U);
  }
}

// The killed server declared the worker lost; the next one hears it.
TEST(Service, ReadmitsWorkerThatItsPredecessorLost) {
  const Deadline limit = Deadline::after(std::chrono::minutes(2));
  for (const Mode mode : {Mode::async, Mode::sync, Mode::ssp}) {
    KilledServer server(std::chrono::milliseconds(500));
    RemoteLink link(greet(server.connect(0), 0, {.mode = mode}), kVariables, std::chrono::minutes(2));
    const ServerMemory memory = server.memory();
    const auto lose_and_restart = [&] {
      wait_until([&] { return memory.phase(0) == WorkerPhase::lost; });
      server.restart();
    };
    link.begin_step(0, limit);
    link.push(2, Values{1, 2, 3}, sgd(1), limit);
    lose_and_restart();
    link.push(0, Values(30, 1.0F), sgd(1), limit);
    link.end_step(0, 1, limit);
    link.flush(limit);
    Values bias(3);
    link.pull(2, bias, limit);
    EXPECT_EQ(bias, (Values{-1, -2, -3}));
    WorkerFigures figures = link.figures().workers[0];
    EXPECT_EQ(figures.phase, WorkerPhase::live);
    EXPECT_EQ(figures.clock, 1U);
    EXPECT_EQ(figures.begun, 1U);
    EXPECT_EQ(figures.lost_steps, 0U);
    link.rest();
    lose_and_restart();
    figures = link.figures().workers[0];
    EXPECT_EQ(figures.phase, WorkerPhase::resting);
    EXPECT_EQ(figures.begun, 1U);
  }
}

}  // namespace
}  // namespace rondo::restarted_server_test
