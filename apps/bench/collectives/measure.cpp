#include <ATen/Parallel.h>
#include <sched.h>
#include <torch/types.h>

#include <cerrno>
#include <cmath>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "apps/bench/collectives/collectives.h"
#include "apps/bench/harness/processes.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/base/error.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/text.h"
#include "rondo/launch/host_resources.h"

namespace rondo::bench {
namespace {

// A shorter sample would measure the clock.
constexpr double kShortestSampleUs = 5;

// Returns the maximum over ranks, element by element.
std::vector<double> largest(const std::vector<double>& mine, const Group& group) {
  at::Tensor values = torch::tensor(mine, at::kDouble);
  all_reduce(values, group, ReduceOp::MAX);
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

Burst plan_burst(const Case& what, double estimate_us, const Effort& effort) {
  Burst burst;
  const double operation_us = std::max(estimate_us, 0.05);
  if (!what.fresh) burst.batch = std::max(1, static_cast<int>(std::ceil(kShortestSampleUs / operation_us)));
  const double sample_us = operation_us * burst.batch;
  burst.samples =
      std::clamp(static_cast<int>(milliseconds(effort.burst) * 1e3 / sample_us), effort.least_samples, 1000);
  return burst;
}

// Reads the clock continuously for `duration`. On an undisturbed core the readings are about 30 ns apart. A
// gap is time taken by the system, a hypervisor or another process. Measurements next to large gaps are
// unreliable.
Gaps watch_for_gaps(Duration duration) {
  constexpr double kGapNs = 20e3;
  const long long start = monotonic_ns();
  const auto length = static_cast<double>(std::chrono::nanoseconds(duration).count());
  Gaps gaps;
  double lost_ns = 0;
  long long last = start;
  while (static_cast<double>(last - start) < length) {
    const long long now = monotonic_ns();
    const auto step = static_cast<double>(now - last);
    gaps.longest_us = std::max(gaps.longest_us, step / 1e3);
    if (step > kGapNs) lost_ns += step;
    last = now;
  }
  gaps.lost = lost_ns / static_cast<double>(last - start);
  return gaps;
}

// Runs the contenders on one case in turns: a burst of each, then again, so that a disturbance of the machine
// affects all of them. Collective over `group`, which agrees on the results; the rows are complete on every
// rank. Skips contenders without the operation.
std::vector<Row> run_case(const Case& what, const std::vector<std::unique_ptr<Contender>>& contenders,
                          const Effort& effort, const Group& group) {
  barrier(group);
  const Gaps gaps = watch_for_gaps(effort.gap_watch);
  const std::vector<double> worst_gaps = largest({gaps.longest_us, gaps.lost}, group);

  std::vector<Contender*> playing;
  std::vector<Burst> bursts;
  std::vector<Row> rows;
  for (const auto& contender : contenders) {
    if (!contender->can(what)) continue;
    const bool right = contender->prepare(what);
    const std::vector<double> agreed = largest({right ? 0.0 : 1.0, contender->estimate_us()}, group);
    playing.push_back(contender.get());
    bursts.push_back(plan_burst(what, agreed[1], effort));
    rows.push_back(
        {what, contender->labels(), group.size(), {}, agreed[0] == 0, {worst_gaps[0], worst_gaps[1]}});
  }
  for (int turn = 0; turn < effort.bursts; ++turn) {
    for (std::size_t i = 0; i < playing.size(); ++i) {
      barrier(group);
      playing[i]->run(bursts[i]);
    }
  }
  barrier(group);
  for (std::size_t i = 0; i < playing.size(); ++i) {
    const Timing mine = playing[i]->finish();
    const std::vector<double> slowest = largest({mine.p50_us, mine.min_us, double(mine.samples)}, group);
    rows[i].timing = {slowest[0], slowest[1], static_cast<int>(slowest[2])};
  }
  return rows;
}

// Pins this thread, and the threads that its engines start later, to the processors of rank r of n.
void pin(int rank, int ranks) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const auto threads_of = launch::bind_workers(launch::cpu_layout(), launch::Binding::core, ranks);
  for (const int cpu : threads_of[static_cast<std::size_t>(rank)]) {
    CPU_SET(cpu, &mine);
  }
  if (sched_setaffinity(0, sizeof(mine), &mine) != 0) {
    throw Error(str("cannot bind rank ", rank, " to its processor: ", errno_text(errno)));
  }
}

// Runs ranks as processes.
Json run_processes(const CollectivesSettings& settings, int ranks) {
  return spawn_for_json(ranks, [&](int rank) {
    pin(rank, ranks);
    at::set_num_threads(1);
    const Context context = init({.backend = "native", .deterministic = settings.deterministic});
    return measure_cases(settings, make_contenders(settings, context.world(), nullptr), context.world());
  });
}

// Runs ranks as threads of this process, for schedules over the channel between threads.
Json run_threads(const CollectivesSettings& settings, int ranks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const ThreadMesh mesh(ranks);
  std::mutex mutex;  // protects first and rows
  std::exception_ptr first;
  Json rows;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        pin(rank, ranks);
        at::set_num_threads(1);
        const Context context = init({.backend = "native",
                                      .rank = rank,
                                      .world_size = ranks,
                                      .local_rank = rank,
                                      .store = store,
                                      .deterministic = settings.deterministic});
        Json mine =
            measure_cases(settings, make_contenders(settings, context.world(), &mesh), context.world());
        const std::lock_guard lock(mutex);
        if (rank == 0) rows = std::move(mine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  return rows;
}

}  // namespace

Json measure_cases(const CollectivesSettings& settings,
                   const std::vector<std::unique_ptr<Contender>>& contenders, const Group& world) {
  const int rank = world.rank();
  Json json = Json::array();
  ProgressLine progress(stderr, ProgressStyle::automatic);
  const bool shows = rank == 0 && settings.table && progress.style() == ProgressStyle::bar;
  for (const std::string& operation : settings.operations) {
    bool heading = true;
    std::string footing;
    for (const Bytes size : settings.sizes) {
      const Bytes unit = smallest_size(operation, world.size(), settings.dtype);
      if (size < unit) continue;
      const Case what{operation, Bytes{size.count / unit.count * unit.count}, settings.dtype, settings.fresh};
      if (shows) progress.show({str("measuring ", operation, " of ", to_string(what.bytes))});
      const std::vector<Row> rows = run_case(what, contenders, settings.effort, world);
      progress.clear();
      if (rank == 0) {
        for (const Row& row : rows) json.push_back(to_json(row, rows));
        if (settings.table && heading) std::cout << table_heading(rows) << "\n";
        if (settings.table) std::cout << table_line(rows) << std::endl;
        footing = table_footing(rows);
      }
      heading = false;
      if (operation == "barrier") break;  // has no size
    }
    if (rank == 0 && settings.table) std::cout << footing << std::flush;
  }
  return json;
}

Json measure_collectives(const CollectivesSettings& settings) {
  Json all = Json::array();
  for (const int ranks : settings.ranks) {
    if (settings.uses("shm") || settings.uses("tcp")) {
      for (auto& row : run_processes(settings, ranks)) all.push_back(std::move(row));
    }
    if (settings.uses("threads")) {
      for (auto& row : run_threads(settings, ranks)) all.push_back(std::move(row));
    }
  }
  return all;
}

}  // namespace rondo::bench
