#pragma once

#include <ATen/Parallel.h>
#include <c10/core/Device.h>
#include <dlfcn.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "rondo/backend/card_engine.h"
#include "rondo/backend/context.h"
#include "tests/rank_processes.h"
#include "tests/sim/counts.h"
#include "tests/temporary_directory.h"

// Ranks with simulated devices are processes: autograd has one backward thread per device and process, so
// ranks as threads with a shared device would block each other. Only these processes load the accelerator,
// since a process must not fork after libtorch has started threads.
namespace rondo::sim {

inline const std::string kModule = RONDO_BINARY_DIR "/../lib/rondo_sim.so";

// Returns a function of the accelerator's module; the first call loads the module.
template <class Function>
Function module_function(const char* name) {
  static void* const module = dlopen(kModule.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const found = module != nullptr ? dlsym(module, name) : nullptr;
  if (found == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function>(found);
}

// Returns the counters of this process's use of its devices.
inline Counts read_counts() {
  Counts counts;
  module_function<ReadCounts>(kReadCounts)(&counts);
  return counts;
}

// Loads the accelerator.
inline c10::Device device(int index) {
  read_counts();
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

// Calls `body` on `size` ranks in separate processes; returns how many failed. `hosts` names each rank's
// pretended host; empty: all are on this host.
inline int run_ranks(int size, const std::function<void(Context&)>& body,
                     const std::string& backend = "native", const std::vector<std::string>& hosts = {}) {
  const TemporaryDirectory directory;
  return tests::run_rank_processes(size, [&](Store& /*meeting*/, int rank) {
    at::set_num_threads(1);
    replace_card_engine(kModule);
    InitOptions options;
    options.backend = backend;
    options.rank = rank;
    options.world_size = size;
    if (hosts.empty()) {
      options.local_rank = rank;
    } else {
      options.host = hosts[static_cast<std::size_t>(rank)];
    }
    options.store = c10::make_intrusive<c10d::FileStore>((directory / "store").string(), size);
    options.timeout = std::chrono::seconds(60);
    Context context = init(options);
    body(context);
  });
}

}  // namespace rondo::sim
