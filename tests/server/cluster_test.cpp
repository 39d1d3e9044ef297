#include "rondo/server/cluster.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/server/protocol.h"
#include "rondo/server/remote_link.h"
#include "rondo/server/service.h"
#include "tests/errors.h"
#include "tests/server/servers.h"
#include "tests/temporary_directory.h"

namespace rondo::cluster_test {
namespace {

using namespace server;
using control::JobSecret;
using server::tests::kVariables;
using server::tests::lost_worker;
using server::tests::meet_from_another_host;
using server::tests::Servers;
using server::tests::sgd;
using testing::expect_facts;
using testing::message_of;
using Values = std::vector<float>;

TEST(Cluster, TrainsAcrossServersAndShards) {
  const Servers servers(2);
  ClusterOptions options = servers.options(0, {.workers = 2});
  options.partitioner = Partitioner::parse("fixed:3", "");
  Cluster chief(options, servers.secret, kVariables);
  EXPECT_FALSE(chief.was_open());
  EXPECT_TRUE(chief.all_local());
  Values weight(30, 1.0F);
  chief.write_state(0, -1, weight, 0, {});
  chief.open();
  options.worker = 1;
  Cluster other(options, servers.secret, kVariables);
  other.wait_until_open();
  for (Cluster* worker : {&chief, &other}) {
    worker->begin_step(0);
    Values pulled(30);
    worker->pull(0, pulled);
    Values gradient(30);
    for (std::size_t i = 0; i < 30; ++i) gradient[i] = static_cast<float>(i);
    worker->push(0, gradient, sgd(1));
    worker->push_rows(1, std::vector<std::uint64_t>{0, 33, 34, 99}, Values(16, 1.0F).data(), sgd(1));
    worker->end_step(1);
    worker->flush();
  }
  Values pulled(30);
  chief.pull(0, pulled);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(pulled[i], 1.0F - 2 * static_cast<float>(i));
  Values table(400);
  EXPECT_EQ(chief.pull_changes(1, table.data()), 100U);
  EXPECT_EQ(table[33 * 4], -2.0F);
  EXPECT_EQ(chief.pull_changes(1, table.data()), 0U);
  other.push_rows(1, std::vector<std::uint64_t>{50}, Values(4, 1.0F).data(), sgd(1));
  other.flush();
  EXPECT_EQ(chief.pull_changes(1, table.data()), 1U);
  EXPECT_EQ(table[50 * 4], -1.0F);
  Values rows(8);
  chief.pull_rows(1, std::vector<std::uint64_t>{99, 50}, rows.data());
  EXPECT_EQ(rows, (Values{-2, -2, -2, -2, -1, -1, -1, -1}));
  EXPECT_EQ(chief.figures().workers[1].clock, 1U);
  other.leave();
  chief.wait_for_others();
  chief.leave();
}

// Trains the chief alone in each mode, although `workers` are expected, until everything ends by itself.
void train_without_the_others(const ServiceOptions& service, std::uint32_t workers) {
  for (const ServerOptions& mode : {ServerOptions{.mode = Mode::async}, ServerOptions{.mode = Mode::sync},
                                    ServerOptions{.mode = Mode::sync, .backup_workers = 1},
                                    ServerOptions{.mode = Mode::ssp, .staleness = 1}}) {
    Servers servers(2, service);
    ServerOptions options = mode;
    options.workers = workers;
    Cluster chief(servers.options(0, options), servers.secret, kVariables);
    chief.open();
    for (std::uint64_t step = 0; step < 4; ++step) {
      chief.begin_step(step);
      chief.push(2, Values(3, 1.0F), sgd(1));
      chief.end_step(1);
    }
    Values bias(3);
    chief.pull(2, bias);
    EXPECT_EQ(bias[0], -4.0F);
    chief.wait_for_others();
    chief.leave();
    EXPECT_TRUE(servers.all_end());
  }
}

// Creates the launcher's file of `processes` worker processes, of which those in `ended` have exited.
std::string file_of_ended(const TemporaryDirectory& directory, std::size_t processes,
                          const std::vector<std::size_t>& ended) {
  std::string bytes(processes, '\0');
  for (const std::size_t process : ended) bytes[process] = 1;
  const std::string path = directory / "ended";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Cluster, DoesNotWaitForWorkersThatEndedEarly) {
  const TemporaryDirectory directory;
  train_without_the_others({.ended_workers = file_of_ended(directory, 2, {1})}, 2);
}

// A group is one worker: it is lost when any of its processes has exited.
TEST(Cluster, DoesNotWaitForGroupsThatEndedEarly) {
  const TemporaryDirectory directory;
  train_without_the_others({.ended_workers = file_of_ended(directory, 6, {5}), .worker_processes = 6}, 2);
}

TEST(Cluster, StopsWaitingForUnknownWorkers) {
  train_without_the_others({.absence = std::chrono::milliseconds(100)}, 2);
}

TEST(Cluster, TakesAWorkerThatComesAfterAll) {
  const TemporaryDirectory directory;
  Servers servers(1, ServiceOptions{.ended_workers = file_of_ended(directory, 2, {1})});
  Cluster chief(servers.options(0, {.workers = 2}), servers.secret, kVariables);
  chief.open();
  EXPECT_EQ(lost_worker(chief, 1).phase, WorkerPhase::lost);
  Cluster other(servers.options(1, {.workers = 2}), servers.secret, kVariables);
  EXPECT_EQ(chief.figures().workers[1].phase, WorkerPhase::live);
  EXPECT_EQ(chief.figures().workers[1].returns, 0U);
  other.leave();
  chief.leave();
}

TEST(Cluster, CodecPushesSendResidualsLater) {
  const Servers servers(2);
  ClusterOptions options = servers.options(0, {});
  options.partitioner = Partitioner::parse("fixed:2", "");
  options.codec = "top_k:0.2";
  Cluster chief(options, servers.secret, kVariables);
  chief.open();
  Values gradient(30);
  for (std::size_t i = 0; i < 30; ++i) gradient[i] = static_cast<float>(i + 1);
  Values residual(30);
  chief.push(0, gradient, sgd(1), residual);
  Values pulled(30);
  chief.pull(0, pulled);
  // The largest three of each half of 15.
  EXPECT_EQ(std::count(pulled.begin(), pulled.end(), 0.0F), 24);
  EXPECT_EQ(pulled[29], -30.0F);
  EXPECT_EQ(pulled[12], -13.0F);
  for (int push = 1; push < 5; ++push) chief.push(0, Values(30, 0.0F), sgd(1), residual);
  chief.pull(0, pulled);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(pulled[i], -gradient[i]);
  options.codec = "zip";
  expect_facts(message_of<UsageError>([&] { Cluster(options, servers.secret, kVariables); }),
               {"zip", "int8", "top_k"});
}

TEST(Cluster, NamesBothSidesWhenModelsOrSettingsDiffer) {
  const Servers servers(1);
  const Cluster chief(servers.options(0, {.workers = 2}), servers.secret, kVariables);
  std::vector<VariableSpec> others = kVariables;
  others[0].rows = 11;
  expect_facts(
      message_of<MismatchError>([&] { Cluster(servers.options(1, {.workers = 2}), servers.secret, others); }),
      {"server 0", "worker 1", "weight", "[10 x 3]", "[11 x 3]"});
  expect_facts(message_of<MismatchError>([&] {
                 Cluster(servers.options(1, {.mode = Mode::ssp, .workers = 2, .staleness = 3}),
                         servers.secret, kVariables);
               }),
               {"server 0", "worker 1", "async", "ssp", "3"});
  expect_facts(message_of<CommunicationError>(
                   [&] { Cluster(servers.options(1, {.workers = 2}), JobSecret::make(), kVariables); }),
               {"server 0", "worker 1", "secret"});
}

TEST(Cluster, ResumesVariablesOfALostServer) {
  const SharedMemory held = SharedMemory::create("held", KiB(4));
  const std::string file = str("/proc/self/fd/", held.descriptor());
  ASSERT_EQ(ftruncate(held.descriptor(), 0), 0);
  {
    const Servers servers(1, file);
    Cluster chief(servers.options(0, {}), servers.secret, kVariables);
    chief.write_state(2, -1, Values{1, 2, 3}, 0, {});
    chief.open();
    chief.begin_step(0);
    chief.push(2, Values{1, 1, 1}, sgd(1));
    chief.end_step(1);
    chief.flush();
  }
  const Servers servers(1, file);
  Cluster chief(servers.options(0, {}), servers.secret, kVariables);
  EXPECT_TRUE(chief.was_open());
  EXPECT_EQ(chief.clock(), 1U);
  Values bias(3);
  chief.pull(2, bias);
  EXPECT_EQ(bias, (Values{0, 1, 2}));
}

TEST(Cluster, CountsStepsOfKilledWorkerAndReadmitsIt) {
  const Servers servers(1);
  Cluster chief(servers.options(0, {.mode = Mode::ssp, .workers = 2, .staleness = 1}), servers.secret,
                kVariables);
  chief.open();
  const pid_t child = fork();
  if (child == 0) {
    Cluster other(servers.options(1, {.mode = Mode::ssp, .workers = 2, .staleness = 1}), servers.secret,
                  kVariables);
    other.begin_step(0);
    other.push(2, Values{1, 1, 1}, sgd(1));
    other.end_step(1);
    other.flush();
    other.begin_step(1);
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  // No worker waits for it.
  for (std::uint64_t step = 0; step < 5; ++step) {
    chief.begin_step(step);
    chief.end_step(1);
  }
  const WorkerFigures lost = chief.figures().workers[1];
  EXPECT_EQ(lost.phase, WorkerPhase::lost);
  EXPECT_EQ(lost.clock, 1U);
  EXPECT_EQ(lost.lost_steps, 1U);
  Cluster back(servers.options(1, {.mode = Mode::ssp, .workers = 2, .staleness = 1}), servers.secret,
               kVariables);
  EXPECT_EQ(back.clock(), 1U);
  EXPECT_EQ(chief.figures().workers[1].returns, 1U);
  EXPECT_EQ(chief.figures().workers[1].phase, WorkerPhase::live);
}

// The same operations through messages, as between hosts.
TEST(RemoteLink, DoesWhatTheLinkOfOneHostDoes) {
  const Servers servers(1);
  Cluster chief(servers.options(0, {.workers = 2}), servers.secret, kVariables);
  chief.open();
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  const auto asker = meet_from_another_host(servers, 1, {.workers = 2});
  RemoteLink link(asker, kVariables, std::chrono::seconds(60));
  EXPECT_TRUE(link.is_open());
  for (int step = 0; step < 20; ++step) {
    link.begin_step(static_cast<std::uint64_t>(step), limit);
    link.push(2, Values{1, 2, 3}, sgd(1), limit);
    link.push_rows(1, std::vector<std::uint64_t>{7}, Values(4, 1.0F).data(), sgd(1), limit);
    link.end_step(static_cast<std::uint64_t>(step), 1, limit);
    Values bias(3);
    link.pull(2, bias, limit);
    EXPECT_EQ(bias[2], -3.0F * static_cast<float>(step + 1));
  }
  const auto codec = collective::make_codec("bfloat16");
  const Values gradient = {1, 2, 3};
  std::vector<std::byte> encoded(codec->encoded_bytes(3));
  codec->encode(gradient, encoded, {});
  link.push_encoded(2, {"bfloat16", encoded}, sgd(1), limit);
  Values coded(3);
  link.pull(2, coded, limit);
  EXPECT_EQ(coded[2], -63.0F);
  expect_facts(message_of<MismatchError>([&] {
                 link.push_encoded(2, {"zip", encoded}, sgd(1), limit);
               }),
               {"zip", "bfloat16"});
  EXPECT_THROW(link.push_encoded(0, {"bfloat16", encoded}, sgd(1), limit), MismatchError);
  std::uint64_t cursor = 0;
  EXPECT_EQ(link.changed_rows(1, cursor, limit), std::vector<std::uint64_t>{7});
  link.hold(limit);
  Values table(400);
  EXPECT_EQ(link.read_state(1, -1, table), 20U);
  EXPECT_EQ(table[28], -20.0F);
  link.write_state(1, -1, Values(400, 5.0F), 0, {});
  link.release();
  Values row(4);
  link.pull_rows(1, std::vector<std::uint64_t>{7}, row.data(), limit);
  EXPECT_EQ(row, Values(4, 5.0F));
  EXPECT_EQ(link.figures().workers[1].clock, 20U);
  EXPECT_THROW(link.pull_rows(1, std::vector<std::uint64_t>{100}, row.data(), limit), MismatchError);
}

TEST(Service, ReadmitsSilentWorkerOfAnotherHost) {
  for (const Mode mode : {Mode::async, Mode::sync, Mode::ssp}) {
    const ServerOptions options{.mode = mode, .workers = 2, .staleness = 100};
    const Servers servers(1, "", std::chrono::milliseconds(500));
    const auto asker = meet_from_another_host(servers, 0, options);
    RemoteLink chief(asker, kVariables, std::chrono::seconds(60));
    const Deadline limit = Deadline::after(std::chrono::seconds(60));
    asker->ask(
        Operation::open, [](control::MessageWriter&) {}, limit);
    Cluster other(servers.options(1, options), servers.secret, kVariables);
    // In the middle of a step.
    chief.begin_step(0, limit);
    chief.push(2, Values{1, 2, 3}, sgd(1), limit);
    EXPECT_EQ(lost_worker(other, 0).phase, WorkerPhase::lost);
    EXPECT_EQ(other.figures().workers[0].clock, 0U);
    chief.push(0, Values(30, 1.0F), sgd(1), limit);
    chief.end_step(0, 1, limit);
    std::jthread step_of_other;
    if (mode == Mode::sync) {
      step_of_other = std::jthread([&] {
        other.begin_step(0);
        other.push(2, Values{1, 2, 3}, sgd(1));
        other.push(0, Values(30, 1.0F), sgd(1));
        other.end_step(1);
      });
    }
    chief.flush(limit);
    if (step_of_other.joinable()) step_of_other.join();
    // The whole step counts, as if nothing had happened.
    Values bias(3), weight(30);
    chief.pull(2, bias, limit);
    chief.pull(0, weight, limit);
    EXPECT_EQ(bias, (Values{-1, -2, -3}));
    EXPECT_EQ(weight, Values(30, -1.0F));
    const WorkerFigures figures = chief.figures().workers[0];
    EXPECT_EQ(figures.phase, WorkerPhase::live);
    EXPECT_EQ(figures.clock, 1U);
    EXPECT_EQ(figures.begun, 1U);
    EXPECT_EQ(figures.lost_steps, 0U);
    EXPECT_GE(figures.returns, 1U);
    other.leave();
    asker->ask(
        Operation::goodbye, [](control::MessageWriter&) {}, limit);
    EXPECT_TRUE(servers.all_end());
  }
}

// Its step counts together with that of the other worker, not instead of it.
TEST(Service, CountsSynchronousStepOfASilentWaitingWorker) {
  const ServerOptions options{.mode = Mode::sync, .workers = 2};
  const Servers servers(1, "", std::chrono::milliseconds(500));
  const auto asker = meet_from_another_host(servers, 0, options);
  RemoteLink chief(asker, kVariables, std::chrono::seconds(60));
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  asker->ask(
      Operation::open, [](control::MessageWriter&) {}, limit);
  Cluster other(servers.options(1, options), servers.secret, kVariables);
  chief.begin_step(0, limit);
  chief.push(2, Values{1, 2, 3}, sgd(1), limit);
  chief.end_step(0, 1, limit);
  const WorkerFigures lost = lost_worker(other, 0);
  EXPECT_EQ(lost.phase, WorkerPhase::lost);
  EXPECT_EQ(lost.clock, 0U);
  EXPECT_EQ(lost.lost_steps, 0U);
  other.begin_step(0);
  other.push(2, Values{3, 2, 1}, sgd(1));
  other.end_step(1);
  chief.flush(limit);
  Values bias(3);
  chief.pull(2, bias, limit);
  EXPECT_EQ(bias, Values(3, -2.0F));
  const ServerFigures figures = chief.figures();
  for (const WorkerFigures& worker : figures.workers) {
    EXPECT_EQ(worker.clock, 1U);
    EXPECT_EQ(worker.begun, 1U);
    EXPECT_EQ(worker.lost_steps, 0U);
    EXPECT_EQ(worker.late, 0U);
  }
}

// Pushes from before a worker's restart are discarded and counted.
TEST(Service, CountsWaitingStepOfRestartedWorkerAsLost) {
  const ServerOptions options{.mode = Mode::sync, .workers = 2};
  const Servers servers(1);
  Cluster chief(servers.options(0, options), servers.secret, kVariables);
  chief.open();
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  RemoteLink before(meet_from_another_host(servers, 1, options), kVariables, std::chrono::seconds(60));
  before.begin_step(0, limit);
  before.push(2, Values{1, 2, 3}, sgd(1), limit);
  before.end_step(0, 1, limit);
  const auto again = meet_from_another_host(servers, 1, options);
  const ServerFigures figures = chief.figures();
  EXPECT_EQ(figures.queued, 0U);
  EXPECT_EQ(figures.workers[1].lost_steps, 1U);
  EXPECT_EQ(figures.workers[1].begun, 0U);
  EXPECT_EQ(figures.workers[1].returns, 1U);
}

TEST(Service, KeepsAWorkerAtRestThatWasSilent) {
  const Servers servers(1, "", std::chrono::milliseconds(500));
  const auto asker = meet_from_another_host(servers, 0, {.workers = 2});
  RemoteLink chief(asker, kVariables, std::chrono::seconds(60));
  Cluster other(servers.options(1, {.workers = 2}), servers.secret, kVariables);
  chief.rest();
  EXPECT_EQ(lost_worker(other, 0).phase, WorkerPhase::lost);
  EXPECT_EQ(chief.figures().workers[0].phase, WorkerPhase::resting);
}

// An endless queue of one worker's entries.
class EndlessQueue {
 public:
  EndlessQueue(const SharedMemory& file, std::size_t worker)
      : memory_(ServerMemory::open(std::make_shared<SharedMemory>(SharedMemory::adopt(file.descriptor())))),
        state_(memory_.worker(worker)) {
    for (std::uint64_t entry = 0; entry < memory_.header().ring; ++entry)
      memory_.entry(worker, entry).kind = EntryKind::end_of_step;
    state_.head.store(std::uint64_t{1} << 60);
  }
  EndlessQueue(const EndlessQueue&) = delete;
  EndlessQueue& operator=(const EndlessQueue&) = delete;
  ~EndlessQueue() { state_.head.store(0); }

 private:
  ServerMemory memory_;
  WorkerState& state_;
};

// The queues of a server that is slower than its workers are never empty.
TEST(Service, ReadmitsWorkerWhileOthersKeepPushing) {
  const SharedMemory held = SharedMemory::create("held", KiB(4));
  ASSERT_EQ(ftruncate(held.descriptor(), 0), 0);
  const Servers servers(1, str("/proc/self/fd/", held.descriptor()));
  Cluster chief(servers.options(0, {.workers = 3}), servers.secret, kVariables);
  chief.open();
  const Cluster other(servers.options(1, {.workers = 3}), servers.secret, kVariables);
  const Cluster before(servers.options(2, {.workers = 3}), servers.secret, kVariables);
  const EndlessQueue pushes(held, 1);
  for (int start = 0; start < 10; ++start) {
    const Cluster again(servers.options(2, {.workers = 3}), servers.secret, kVariables);
    EXPECT_TRUE(again.was_open());
  }
  EXPECT_EQ(chief.figures().workers[2].returns, 10U);
}

// The server is a process that is killed.
TEST(Cluster, StopsWaitingForOthersOfALostServer) {
  const JobSecret secret = JobSecret::make();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t server = fork();
  if (server == 0) {
    Service service({}, secret);
    const std::string address = service.address() + "\n";
    if (write(ends[1], address.data(), address.size()) < 0) _exit(1);
    service.run([] { return false; });
    _exit(0);
  }
  std::string address;
  for (char next = 0; read(ends[0], &next, 1) == 1 && next != '\n';) address += next;
  close(ends[0]);
  close(ends[1]);
  const ClusterOptions options = {
      .addresses = {address}, .worker = 0, .server = {.workers = 2}, .timeout = std::chrono::seconds(5)};
  Cluster chief(options, secret, kVariables);
  chief.open();
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  expect_facts(message_of<TimeoutError>([&] { chief.wait_for_others(); }), {"server 0", "worker 0"});
}

// A server answers arbitrary bytes and continues.
TEST(Service, TrustsNoRequest) {
  const Servers servers(1);
  Cluster chief(servers.options(0, {.workers = 2}), servers.secret, kVariables);
  chief.open();
  control::Connection connection(servers.addresses[0], servers.secret, "nobody", "server 0");
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    control::MessageWriter writer;
    write_head(writer, {.operation = static_cast<Operation>(random() % 18), .worker = 0, .number = random()});
    const std::size_t fields = random() % 12;
    for (std::size_t field = 0; field < fields; ++field) {
      if (random() % 2 == 0) {
        writer.number(static_cast<std::uint32_t>(random() % 5));
      } else {
        writer.number(random() % 300 == 0 ? random() : random() % 40);
      }
    }
    std::string message = writer.take();
    if (random() % 4 == 0) message[random() % message.size()] = static_cast<char>(random());
    EXPECT_GE(connection.ask(message, Deadline::after(std::chrono::seconds(60))).size(), 4U);
  }
  Values bias(3);
  Cluster back(servers.options(0, {.workers = 2}), servers.secret, kVariables);
  back.release();
  back.pull(2, bias);
}

TEST(Service, RefusesAnotherVersion) {
  control::MessageWriter writer;
  writer.number(std::uint32_t{0x72707331}).text("9.9.9");
  const std::string message = writer.take();
  control::MessageReader reader(message, "worker 1");
  expect_facts(message_of<MismatchError>([&] { read_head(reader, "server 0", "worker 1"); }),
               {"server 0", "worker 1", "9.9.9", RONDO_VERSION});
}

}  // namespace
}  // namespace rondo::cluster_test
