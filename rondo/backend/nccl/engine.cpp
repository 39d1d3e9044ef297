#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "rondo/backend/engine/cards.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/nccl/combined_backend.h"
#include "rondo/backend/nccl/device_watch.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/backend/nccl/nccl_options.h"
#include "rondo/backend/nccl/part_of.h"
#include "rondo/backend/nccl/watched_backend.h"
#include "rondo/base/replica.h"

namespace rondo {
namespace {

// One watch for all groups of a job on this rank. Any thread.
class DeviceWatches {
 public:
  // The group of `request` is all ranks of the job where there is no watch yet.
  std::shared_ptr<DeviceWatch> of_job(const BackendRequest& request) {
    if (!request.job_store) return std::make_shared<DeviceWatch>(request);
    const Key key{request.job_store.get(), replica_of_this_rank()};
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(watches_, [](const auto& each) { return each.second.watch.expired(); });
      const auto found = watches_.find(key);
      auto watch = found != watches_.end() ? found->second.watch.lock() : nullptr;
      if (watch && !watch->has_left()) return watch;
    }
    // Without the lock: ranks may be threads, and wait for each other here.
    auto made = std::make_shared<DeviceWatch>(request);
    const std::lock_guard lock(mutex_);
    watches_[key] = {made, request.job_store};
    return made;
  }

 private:
  struct Known {
    std::weak_ptr<DeviceWatch> watch;
    c10::intrusive_ptr<c10d::Store> job;  // keeps the address
  };
  using Key = std::pair<const c10d::Store*, int>;  // the store of a job, and the rank's replica (replica.h)
  std::mutex mutex_;                               // protects watches_
  std::map<Key, Known> watches_;
};

}  // namespace

RegisteredBackend beside_control(BackendFactory device, const EngineTraits& traits,
                                 CombinedBackend::CardOf card_of) {
  const auto make = [device = std::move(device), traits, card_of = std::move(card_of),
                     watches = std::make_shared<DeviceWatches>()](const BackendRequest& request) {
    // First, so that a build or host without the engine says so before ranks meet.
    const auto engine = device(part_of(request, "device"));
    Communicator control = request.make(engine_of_auto(request.one_host()), part_of(request, "control"));
    auto watched =
        c10::make_intrusive<WatchedBackend>(request, watches->of_job(request), engine, control.backend);
    return c10::make_intrusive<CombinedBackend>(request, std::move(control),
                                                Communicator{std::move(watched), traits}, card_of);
  };
  return {make, {.device_tensors = true}, true};
}

// One, which knows the watches of all jobs.
RegisteredBackend NcclFolder::engine(const Options& /*none*/) {
  static const RegisteredBackend engine = beside_control(make_nccl_backend, kNcclTraits, card_of);
  return engine;
}

}  // namespace rondo
