#include "apps/bench/collectives/measure.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "apps/bench/collectives/contenders.h"
#include "apps/bench/collectives/result.h"
#include "rondo/backend/context.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/launch/cpu_binding.h"
#include "rondo/launch/spawn.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

// On the processors of rank r of n, and so the threads that its engines start.
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

// One rank's part: everything for one number of ranks. Rank 0 prints, and returns the rows.
Json run_rank(const CollectivesSettings& settings, const Context& context, const ThreadMesh* mesh) {
  const Group& world = context.world();
  const int rank = world.rank();
  const auto contenders = make_contenders(settings, world, mesh);
  Json json = Json::array();
  for (const std::string& operation : settings.operations) {
    bool heading = true;
    std::string footing;
    for (const Bytes size : settings.sizes) {
      const Bytes unit = smallest_size(operation, world.size(), settings.dtype);
      if (size < unit) continue;
      const Case what{operation, Bytes{size.count / unit.count * unit.count}, settings.dtype, settings.fresh};
      const std::vector<Row> rows = run_case(what, contenders, settings.effort, world);
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

// Ranks as processes. What rank 0 found comes back through a file without a name.
Json run_processes(const CollectivesSettings& settings, int ranks) {
  const int results = memfd_create("rondo-bench-results", 0);
  if (results < 0) throw Error(str("cannot keep the results: ", errno_text(errno)));
  spawn(
      [&](int rank) {
        pin(rank, ranks);
        at::set_num_threads(1);
        const Context context = init({.backend = "native", .deterministic = settings.deterministic});
        const std::string text = run_rank(settings, context, nullptr).dump();
        if (rank == 0 && write(results, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
          throw Error(str("cannot keep the results: ", errno_text(errno)));
        }
      },
      ranks);
  std::string text(static_cast<std::size_t>(lseek(results, 0, SEEK_END)), '\0');
  const ssize_t count = pread(results, text.data(), text.size(), 0);
  close(results);
  if (count != static_cast<ssize_t>(text.size())) throw Error("cannot read the results back");
  return parse_json_strict(text, "the results of rank 0");
}

// Ranks as threads of this process, for plans over the channel between threads.
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
        Json mine = run_rank(settings, context, &mesh);
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
