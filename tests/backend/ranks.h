#pragma once

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/backend/context.h"

namespace rondo::testing {

// Runs `body` on `size` ranks that are threads of this process; throws the first exception after all have
// ended. `hosts` says on which host each rank pretends to be; empty: all on this one.
inline void run_ranks(int size, const std::string& backend, const std::function<void(Context&)>& body,
                      Duration timeout = std::chrono::seconds(60), const std::vector<int>& hosts = {}) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::mutex mutex;  // protects first
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        InitOptions options;
        options.backend = backend;
        options.rank = rank;
        options.world_size = size;
        options.store = store;
        options.timeout = timeout;
        if (!hosts.empty()) options.host = "host " + std::to_string(hosts[static_cast<std::size_t>(rank)]);
        Context context = init(options);
        body(context);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace rondo::testing
