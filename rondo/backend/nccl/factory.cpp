#include <memory>
#include <utility>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/module.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/backend/nccl/combined_backend.h"
#include "rondo/backend/nccl/device_watch.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/backend/nccl/watched_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/device/cards.h"

namespace rondo {
namespace {

// Returns the one watch for all groups of a job on this rank. If there is none yet, the group of `request`
// contains all ranks of the job.
std::shared_ptr<DeviceWatch> watch_of_job(const BackendRequest& request) {
  if (!request.job_objects) return std::make_shared<DeviceWatch>(request);
  auto watch = request.job_objects->find<DeviceWatch>();
  if (watch && !watch->has_left()) return watch;
  watch = std::make_shared<DeviceWatch>(request);
  request.job_objects->set(watch);
  return watch;
}

}  // namespace

RegisteredBackend beside_control(BackendFactory device, const EngineTraits& traits,
                                 CombinedBackend::CardOf card_of) {
  const auto make = [device = std::move(device), traits,
                     card_of = std::move(card_of)](const BackendRequest& request) {
    // Checked first, so that a build or host without the engine fails before the rendezvous.
    const auto engine = device(part_of(request, "device"));
    Communicator control = request.make(engine_of_auto(request.one_host()), part_of(request, "control"));
    auto watched =
        c10::make_intrusive<WatchedBackend>(request, watch_of_job(request), engine, control.backend);
    return c10::make_intrusive<CombinedBackend>(request, std::move(control),
                                                Communicator{std::move(watched), traits}, card_of);
  };
  return {make, {.device_tensors = true}, true};
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  const std::string path = find_module(kNcclModule);
  if (path.empty()) throw UsageError(kNoNccl);
  load_cuda();  // called before the module is loaded, which depends on libtorch's CUDA library
  return load_backend(path, "nccl").factory(request);
}

RegisteredBackend NcclEngineFactory::engine(const Options& /*none*/) {
  return beside_control(make_nccl_backend, kNcclTraits, card_of);
}

}  // namespace rondo
