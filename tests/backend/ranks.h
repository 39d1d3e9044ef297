#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "rondo/backend/context.h"
#include "tests/rank_threads.h"

namespace rondo::testing {

// Initialises the libraries behind libtorch in one thread. When several ranks as threads were the first to
// use them at once, a training was seen to round differently than the same one a second later (6 of 550
// processes, none of 550 after this).
inline void set_up_mathematics() {
  static std::once_flag once;
  std::call_once(once, [] {
    at::set_num_threads(1);
    const at::Tensor weights = at::ones({600, 8}).set_requires_grad(true);
    at::log_softmax(at::linear(at::tanh(at::linear(at::ones({4, 8}), weights)), weights.t()), 1)
        .sum()
        .backward();
  });
}

// Runs `body` on `size` ranks that are threads of this process; throws the first exception after all have
// ended. `hosts` gives the number of each rank's simulated host; empty: all on this one.
inline void run_ranks(int size, const std::string& backend, const std::function<void(Context&)>& body,
                      Duration timeout = std::chrono::seconds(60), const std::vector<int>& hosts = {}) {
  set_up_mathematics();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tests::run_rank_threads(size, [&](int rank) {
    at::set_num_threads(1);  // OpenMP threads of the ranks would wait for each other
    InitOptions options;
    options.backend = backend;
    options.rank = rank;
    options.world_size = size;
    options.store = store;
    options.timeout = timeout;
    if (!hosts.empty()) options.host = "host " + std::to_string(hosts[static_cast<std::size_t>(rank)]);
    Context context = init(options);
    body(context);
  });
}

// Runs `body` with the group of all ranks.
inline void run_ranks(const std::string& backend, int size, const std::function<void(const Group&)>& body) {
  run_ranks(
      size, backend, [&](Context& context) { body(context.world()); }, std::chrono::seconds(60));
}

}  // namespace rondo::testing
