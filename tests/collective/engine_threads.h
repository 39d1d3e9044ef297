#pragma once

#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <optional>

#include "rondo/channel/store.h"
#include "rondo/collective/shared_memory/engine.h"
#include "tests/rank_threads.h"

namespace rondo::shared_memory {

inline GroupOptions rank_options(int rank, int size, Duration timeout = std::chrono::seconds(60)) {
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.timeout = timeout;
  return options;
}

// Runs `body` on `size` ranks that are threads, each with an engine over `arena`, which may be null. No body
// starts before all engines have joined: what one does might end the joining of another. Rethrows the first
// exception.
inline void run_engine_threads(int size, const std::shared_ptr<SharedArena>& arena,
                               const std::function<void(Engine&)>& body) {
  MemoryStore store;
  std::latch joined(size);
  rondo::tests::run_rank_threads(size, [&](int rank) {
    std::optional<Engine> engine;
    try {
      engine.emplace(store, rank_options(rank, size), arena);
    } catch (...) {
      joined.count_down();
      throw;
    }
    joined.arrive_and_wait();
    body(*engine);
  });
}

}  // namespace rondo::shared_memory
