#include "rondo/server/updater.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>
#include <random>

#include "rondo/base/error.h"
#include "tests/errors.h"
#include "tests/server/server_memory.h"

namespace rondo::updater_test {
namespace {

using namespace server;
using server_testing::link_of;
using server_testing::make_memory;
using server_testing::ServerThread;
using server_testing::soon;
using testing::expect_facts;
using testing::message_of;
using Values = std::vector<float>;

Entry sgd(double rate, double weight = 1) {
  Entry entry;
  entry.spec.learning_rate = rate;
  entry.weight = weight;
  return entry;
}

Values pulled(Link& link, std::size_t v, std::size_t size) {
  Values values(size);
  link.pull(v, values, soon());
  return values;
}

Values random_values(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(size);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Updater, AppliesDensePushBeforeTheNextPull) {
  const ServerMemory memory = make_memory({{"w", 3, 1, false}}, {});
  const ServerThread server(memory);
  LocalLink link = link_of(memory, 0);
  for (int step = 1; step <= 50; ++step) {
    link.push(0, Values{1, 2, -1}, sgd(0.5), soon());
    EXPECT_EQ(pulled(link, 0, 3), (Values{-0.5F * step, -1.0F * step, 0.5F * step}));
  }
}

// A worker's ring has space for a step of all variables, none of which is applied before the end of the step.
TEST(Updater, AppliesSynchronousStepsOfAnySize) {
  for (const std::size_t count : {1, 7, 8, 9, 16, 20, 24, 25, 32, 47, 56, 64, 100, 120, 121}) {
    std::vector<VariableSpec> variables;
    for (std::size_t v = 0; v < count; ++v) variables.push_back({"v" + std::to_string(v), 1, 1, false});
    const ServerMemory memory = make_memory(variables, {.mode = Mode::sync});
    const ServerThread server(memory);
    LocalLink link = link_of(memory, 0);
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (std::size_t v = 0; v < count; ++v) link.push(v, Values{1}, sgd(1), soon());
      link.end_step(step, 1, soon());
      link.flush(soon());
    }
    for (std::size_t v = 0; v < count; ++v) EXPECT_EQ(pulled(link, v, 1), Values{-3}) << v << " of " << count;
  }
}

TEST(Updater, ChangesOnlyTheRowsThatTravel) {
  const ServerMemory memory = make_memory({{"table", 1000, 2, true}}, {});
  const ServerThread server(memory);
  LocalLink link = link_of(memory, 0);
  std::uint64_t cursor = kNoCursor;
  EXPECT_FALSE(link.changed_rows(0, cursor, soon()));
  const std::vector<std::uint64_t> rows = {3, 999};
  link.push_rows(0, rows, Values{1, 2, 3, 4}.data(), sgd(1), soon());
  EXPECT_EQ(link.changed_rows(0, cursor, soon()), rows);
  Values two(4);
  link.pull_rows(0, rows, two.data(), soon());
  EXPECT_EQ(two, (Values{-1, -2, -3, -4}));
  const Values all = pulled(link, 0, 2000);
  EXPECT_EQ(std::count(all.begin(), all.end(), 0.0F), 1996);
  // Repeated and unordered rows are added up first.
  link.push_rows(0, std::vector<std::uint64_t>{5, 3, 5}, Values{1, 1, 1, 1, 1, 1}.data(), sgd(1), soon());
  link.pull_rows(0, std::vector<std::uint64_t>{3, 5}, two.data(), soon());
  EXPECT_EQ(two, (Values{-2, -3, -2, -2}));
  expect_facts(message_of<UsageError>(
                   [&] { link.pull_rows(0, std::vector<std::uint64_t>{1000}, two.data(), soon()); }),
               {"worker 0", "server 0", "1000"});
}

TEST(Updater, TouchesRowsWithoutPageFaults) {
  const ServerMemory memory = make_memory({{"table", 100000, 64, true}}, {});
  LocalLink link = link_of(memory, 0);
  Updater updater(memory);
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  std::vector<std::uint64_t> rows;
  for (std::uint64_t row = 0; row < 1000; ++row) rows.push_back(row * 97);
  const Values gradients(rows.size() * 64, 1.0F);
  link.push_rows(0, rows, gradients.data(), sgd(1), soon());
  const auto before = faults();
  EXPECT_TRUE(updater.run_once());
  // Each row is on a separate, untouched page. The address sanitizer touches one shadow byte for every eight
  // bytes.
#ifdef __SANITIZE_ADDRESS__
  const long of_sanitizer = 1000 * 97 * 64 * 4 / 8 / 4096;
#else
  const long of_sanitizer = 0;
#endif
  EXPECT_LT(faults() - before, 100 + of_sanitizer);
  EXPECT_EQ(memory.values(0)[97 * 64], -1.0F);
}

TEST(Updater, RefusesAndCountsNonFiniteGradients) {
  const ServerMemory memory = make_memory({{"w", 2, 1, false}, {"table", 4, 1, true}}, {});
  const ServerThread server(memory);
  LocalLink link = link_of(memory, 0);
  link.push(0, Values{1, std::numeric_limits<float>::quiet_NaN()}, sgd(1), soon());
  link.push_rows(1, std::vector<std::uint64_t>{4}, Values{1}.data(), sgd(1), soon());
  EXPECT_EQ(pulled(link, 0, 2), (Values{0, 0}));
  EXPECT_EQ(pulled(link, 1, 4), (Values{0, 0, 0, 0}));
  EXPECT_EQ(link.figures().workers[0].refused, 2U);
  link.push(0, Values{1, 1}, sgd(1), soon());
  EXPECT_EQ(pulled(link, 0, 2), (Values{-1, -1}));
}

TEST(Updater, RefusesAnotherOptimizerAndRatesThatCannotBe) {
  const ServerMemory memory = make_memory({{"w", 1, 1, false}, {"table", 4, 1, true}}, {});
  const ServerThread server(memory);
  LocalLink link = link_of(memory, 0);
  link.push(0, Values{1}, sgd(1), soon());
  link.flush(soon());
  Entry adam;
  adam.spec.kind = OptimizerKind::adam;
  expect_facts(message_of<MismatchError>([&] { link.push(0, Values{1}, adam, soon()); }), {"Adam", "SGD"});
  EXPECT_THROW(link.push(0, Values{1}, sgd(-1), soon()), UsageError);
  EXPECT_THROW(link.push(0, Values{1}, sgd(std::nan("")), soon()), UsageError);
  Entry decay = sgd(1);
  decay.spec.weight_decay = 0.1;
  EXPECT_THROW(link.push_rows(1, std::vector<std::uint64_t>{1}, Values{1}.data(), decay, soon()), UsageError);
}

// Even if neither of the first pushes is applied yet.
TEST(Updater, RefusesAnotherOptimizerBeforeTheFirstPush) {
  for (const Mode mode : {Mode::async, Mode::sync}) {
    const ServerMemory memory = make_memory({{"w", 3, 1, false}}, {.mode = mode, .workers = 2});
    LocalLink first = link_of(memory, 0), second = link_of(memory, 1);
    Entry adam = sgd(1);
    adam.spec.kind = OptimizerKind::adam;
    first.push(0, Values{1, 1, 1}, sgd(1), soon());
    expect_facts(message_of<MismatchError>([&] {
                   second.push(0, Values{1, 1, 1}, adam, soon());
                 }),
                 {"worker 1", "server 0", "Adam", "SGD"});
    EXPECT_EQ(memory.worker(1).head.load(), 0U);
    second.push(0, Values{1, 1, 1}, sgd(1), soon());
  }
}

// Momentum starts after the first push; state restored from a checkpoint is kept.
TEST(Updater, AllocatesOptimizerStateOnFirstUse) {
  const ServerMemory memory = make_memory({{"w", 1, 1, false}, {"a", 1, 1, false}}, {});
  const ServerThread server(memory);
  LocalLink link = link_of(memory, 0);
  Entry momentum = sgd(1);
  momentum.spec.momentum = 0.5;
  link.push(0, Values{1}, sgd(1), soon());
  link.flush(soon());
  EXPECT_EQ(memory.variable(0).prepared.load(), 1U);
  for (int push = 0; push < 2; ++push) link.push(0, Values{1}, momentum, soon());
  EXPECT_EQ(pulled(link, 0, 1), Values{-1 - 1 - 1.5F});
  EXPECT_EQ(memory.variable(0).prepared.load(), 2U);
  Entry adagrad = sgd(1);
  adagrad.spec.kind = OptimizerKind::adagrad;
  adagrad.spec.initial_accumulator = 100;
  link.write_state(1, 0, Values{3}, 1, adagrad.spec);
  link.push(1, Values{1}, adagrad, soon());
  link.flush(soon());
  EXPECT_EQ(*memory.slot(1, 0), 4.0F);
}

// The server's link for a worker of another host ends with the server; the entries do not.
TEST(LocalLink, KnowsWhatWasPushedThroughTheOneBefore) {
  const ServerMemory memory =
      make_memory({{"w", 1, 1, false}, {"v", 1, 1, false}}, {.mode = Mode::sync, .workers = 1});
  {
    LocalLink link = link_of(memory, 0);
    EXPECT_TRUE(link.begin_request(7));
    link.push(0, Values{1}, sgd(1), soon());
  }
  LocalLink link = link_of(memory, 0);
  EXPECT_FALSE(link.takes_push(0));
  EXPECT_FALSE(link.begin_request(7));
  // The rest of the step is accepted: the first part waits for the end of the step.
  EXPECT_TRUE(link.takes_push(1));
  EXPECT_TRUE(link.begin_request(8));
  link.push(1, Values{2}, sgd(1), soon());
  link.end_step(0, 1, soon());
  Updater updater(memory);
  EXPECT_TRUE(updater.run_once());
  EXPECT_EQ(pulled(link, 0, 1), Values{-1});
  EXPECT_EQ(pulled(link, 1, 1), Values{-2});
}

TEST(Updater, CountsRefusedWaitingStepOnce) {
  const ServerMemory memory = make_memory({{"w", 1, 1, false}}, {.mode = Mode::sync, .workers = 2});
  LocalLink link = link_of(memory, 0), other = link_of(memory, 1);
  link.push(0, Values{std::numeric_limits<float>::quiet_NaN()}, sgd(1), soon());
  link.end_step(0, 1, soon());
  for (int start = 0; start < 3; ++start) {
    EXPECT_FALSE(Updater(memory).run_once());
    EXPECT_EQ(link.figures().workers[0].refused, 1U);
  }
  other.push(0, Values{2}, sgd(1), soon());
  other.end_step(0, 1, soon());
  EXPECT_TRUE(Updater(memory).run_once());
  EXPECT_EQ(pulled(link, 0, 1), Values{-2});
}

TEST(Updater, TakesTheWeightedMeanOfASynchronousStep) {
  const ServerMemory memory =
      make_memory({{"w", 2, 1, false}, {"table", 4, 1, true}}, {.mode = Mode::sync, .workers = 2});
  const ServerThread server(memory);
  for (int step = 0; step < 3; ++step) {
    std::vector<std::jthread> threads;
    for (std::size_t w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        LocalLink link = link_of(memory, w);
        const double weight = w == 0 ? 1 : 3;
        link.begin_step(static_cast<std::uint64_t>(step), soon());
        link.push(0, Values{4, 0}, sgd(1, weight), soon());
        link.push_rows(1, std::vector<std::uint64_t>{w, 3}, Values{4, 8}.data(), sgd(1, weight), soon());
        link.end_step(memory.header().sync_step.load(), weight, soon());
        link.flush(soon());
      });
    }
  }
  LocalLink link = link_of(memory, 0);
  EXPECT_EQ(pulled(link, 0, 2), (Values{-12, 0}));
  EXPECT_EQ(pulled(link, 1, 4), (Values{-3, -9, 0, -24}));
  EXPECT_EQ(link.figures().sync_step, 3U);
}

TEST(Updater, WaitsForOthersAfterALostWorkersPush) {
  const ServerMemory memory = make_memory({{"w", 1, 1, false}}, {.mode = Mode::sync, .workers = 2});
  Updater updater(memory);
  LocalLink lost = link_of(memory, 0), live = link_of(memory, 1);
  lost.push(0, Values{1}, sgd(1), soon());
  lost.end_step(0, 1, soon());
  memory.worker(0).phase.store(static_cast<std::uint32_t>(WorkerPhase::lost));
  EXPECT_FALSE(updater.run_once());
  live.push(0, Values{3}, sgd(1), soon());
  live.end_step(0, 1, soon());
  EXPECT_TRUE(updater.run_once());
  EXPECT_EQ(pulled(live, 0, 1), Values{-2});
  EXPECT_EQ(live.figures().workers[1].late, 0U);
  // Afterwards it is no longer waited for.
  live.push(0, Values{1}, sgd(1), soon());
  live.end_step(1, 1, soon());
  EXPECT_TRUE(updater.run_once());
  EXPECT_EQ(pulled(live, 0, 1), Values{-3});
}

TEST(Updater, SkipsBackupWorkersAndCountsLatePushes) {
  const ServerMemory memory =
      make_memory({{"w", 1, 1, false}}, {.mode = Mode::sync, .workers = 2, .backup_workers = 1});
  const ServerThread server(memory);
  LocalLink fast = link_of(memory, 0), slow = link_of(memory, 1);
  fast.push(0, Values{1}, sgd(1), soon());
  fast.end_step(0, 1, soon());
  fast.flush(soon());  // without the slow worker
  slow.push(0, Values{100}, sgd(1), soon());
  slow.end_step(0, 1, soon());
  slow.flush(soon());
  EXPECT_EQ(pulled(slow, 0, 1), Values{-1});
  EXPECT_EQ(slow.figures().workers[1].late, 1U);
  slow.push(0, Values{2}, sgd(1), soon());
  slow.end_step(1, 1, soon());
  slow.flush(soon());
  EXPECT_EQ(pulled(fast, 0, 1), Values{-3});
}

TEST(Updater, LimitsLeadToTheStaleness) {
  const ServerMemory memory =
      make_memory({{"w", 1, 1, false}}, {.mode = Mode::ssp, .workers = 2, .staleness = 2});
  const ServerThread server(memory);
  std::atomic<std::uint64_t> furthest{0};
  const auto work = [&](std::size_t w, bool slow) {
    LocalLink link = link_of(memory, w);
    for (std::uint64_t step = 0; step < 40; ++step) {
      link.begin_step(step, soon());
      const std::uint64_t other = memory.worker(1 - w).clock.load();
      if (step > other) furthest.store(std::max(furthest.load(), step - other));
      if (slow) std::this_thread::sleep_for(std::chrono::microseconds(300));
      link.push(0, Values{1}, sgd(1), soon());
      link.end_step(step, 1, soon());
    }
    link.flush(soon());
    memory.worker(w).phase.store(static_cast<std::uint32_t>(WorkerPhase::finished));
  };
  {
    std::jthread fast([&] { work(0, false); }), slow([&] { work(1, true); });
  }
  EXPECT_EQ(furthest.load(), 2U);
  LocalLink link = link_of(memory, 0);
  EXPECT_EQ(pulled(link, 0, 1), Values{-80});

  // A lost worker blocks no other worker; a live worker that does nothing does, and the error names it.
  link.begin_step(40, soon());
  memory.worker(1).phase.store(static_cast<std::uint32_t>(WorkerPhase::live));
  expect_facts(
      message_of<TimeoutError>([&] { link.begin_step(43, Deadline::after(std::chrono::milliseconds(50))); }),
      {"worker 0", "server 0", "worker 1", "40 steps"});
}

TEST(Updater, ServesWorkersInTurn) {
  constexpr std::size_t kWorkers = 16;
  std::vector<VariableSpec> variables(8, {"w", 4, 1, false});
  const ServerMemory memory = make_memory(variables, {.workers = kWorkers});
  std::vector<LocalLink> links;
  for (std::size_t w = 0; w < kWorkers; ++w) {
    links.push_back(link_of(memory, w));
    // The first worker has pushed more than the others.
    for (std::size_t v = 0; v < (w == 0 ? variables.size() : 1); ++v)
      links.back().push(v, Values(4, 1.0F), sgd(1), soon());
  }
  Updater updater(memory);
  for (std::size_t turn = 0; turn < kWorkers; ++turn) EXPECT_TRUE(updater.run_once());
  for (std::size_t w = 0; w < kWorkers; ++w) EXPECT_EQ(memory.worker(w).tail.load(), 1U) << "worker " << w;
}

TEST(Updater, LosesNoPushOfManyWorkers) {
  constexpr std::size_t kWorkers = 16;
  constexpr int kPushes = 200;
  const ServerMemory memory = make_memory({{"w", 1000, 1, false}}, {.workers = kWorkers});
  const ServerThread server(memory);
  {
    std::vector<std::jthread> threads;
    for (std::size_t w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        LocalLink link = link_of(memory, w);
        Values values(1000);
        for (int push = 0; push < kPushes; ++push) {
          link.pull(0, values, soon());
          // Each block is consistent: its state between two updates.
          EXPECT_EQ(values, Values(1000, values[0]));
          link.push(0, Values(1000, 1.0F), sgd(1), soon());
        }
        link.flush(soon());
      });
    }
  }
  LocalLink link = link_of(memory, 0);
  EXPECT_EQ(pulled(link, 0, 1000), Values(1000, -1.0F * kPushes * kWorkers));
}

TEST(Updater, StandsStillForACheckpoint) {
  const ServerMemory memory = make_memory({{"w", 1, 1, false}}, {.workers = 2});
  const ServerThread server(memory);
  LocalLink chief = link_of(memory, 0), other = link_of(memory, 1);
  chief.hold(soon());
  other.push(0, Values{1}, sgd(1), soon());
  EXPECT_EQ(pulled(chief, 0, 1), Values{0});
  EXPECT_EQ(chief.figures().queued, 1U);
  chief.release();
  EXPECT_EQ(pulled(other, 0, 1), Values{-1});
}

// A kill at any point of an update: the next server finishes the update exactly once, bit for bit.
struct Kill {};

struct Push {
  std::size_t worker;
  std::size_t variable;
  std::vector<std::uint64_t> rows;  // empty: dense
  Values gradient;
};

void recover_at_every_point(const ServerOptions& options, const std::vector<VariableSpec>& variables,
                            const std::vector<Push>& pushes, OptimizerKind kind) {
  const auto run = [&](int killed_at, int& points) {
    const ServerMemory memory = make_memory(variables, options);
    std::vector<LocalLink> links;
    for (std::size_t w = 0; w < options.workers; ++w) links.push_back(link_of(memory, w));
    Entry how;
    how.spec.kind = kind;
    how.spec.momentum = kind == OptimizerKind::sgd ? 0.9 : 0;
    for (const Push& push : pushes) {
      if (push.rows.empty()) {
        links[push.worker].push(push.variable, push.gradient, how, soon());
      } else {
        links[push.worker].push_rows(push.variable, push.rows, push.gradient.data(), how, soon());
      }
    }
    if (options.mode == Mode::sync) {
      for (std::size_t w = 0; w < options.workers; ++w) {
        Entry end;
        end.kind = EntryKind::end_of_step;
        memory.entry(w, memory.worker(w).head.load()) = end;
        ++memory.worker(w).head;
      }
    }
    points = 0;
    try {
      Updater updater(memory);
      updater.at_every_point = [&] {
        if (points++ == killed_at) throw Kill();
      };
      while (updater.run_once()) {
      }
    } catch (const Kill&) {
    }
    Updater next(memory);
    while (next.run_once()) {
    }
    Values all;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      for (const float* part : {memory.values(v), memory.slot(v, 0), memory.slot(v, 1)})
        all.insert(all.end(), part, part + memory.elements(v));
      all.push_back(static_cast<float>(memory.variable(v).step.load()));
      EXPECT_EQ(memory.variable(v).version.load() % 2, 0U);
    }
    for (std::size_t w = 0; w < options.workers; ++w)
      EXPECT_EQ(memory.worker(w).tail.load(), memory.worker(w).head.load());
    return all;
  };
  int points = 0;
  const Values whole = run(-1, points);
  const int all_points = points;
  ASSERT_GT(all_points, 10);
  for (int at = 0; at < all_points; ++at) EXPECT_EQ(run(at, points), whole) << "killed at point " << at;
}

TEST(Updater, KilledUpdateLosesNothing) {
  const std::vector<VariableSpec> variables = {{"w", 40000, 1, false}, {"table", 500, 64, true}};
  std::vector<std::uint64_t> rows;
  for (std::uint64_t row = 0; row < 400; ++row) rows.push_back(row + row / 10);
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adagrad}) {
    recover_at_every_point(
        {}, variables, {{0, 0, {}, random_values(40000, 1)}, {0, 1, rows, random_values(400 * 64, 2)}}, kind);
  }
}

TEST(Updater, KilledSynchronousStepLosesNothing) {
  const std::vector<VariableSpec> variables = {
      {"w", 20000, 1, false}, {"table", 50, 8, true}, {"b", 3, 1, false}};
  recover_at_every_point({.mode = Mode::sync, .workers = 2}, variables,
                         {{0, 0, {}, random_values(20000, 1)},
                          {1, 0, {}, random_values(20000, 2)},
                          {0, 1, {1, 7}, random_values(16, 3)},
                          {1, 1, {7, 20}, random_values(16, 4)},
                          {1, 2, {}, random_values(3, 5)}},
                         OptimizerKind::adam);
}

}  // namespace
}  // namespace rondo::updater_test
