#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <utility>

#include "rondo/backend/engine/cards.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/nccl/combined_backend.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/backend/nccl/nccl_options.h"

namespace rondo {
namespace {

BackendRequest part_of(const BackendRequest& request, const char* part) {
  BackendRequest own = request;
  own.store = c10::make_intrusive<c10d::PrefixStore>(part, request.store);
  if (request.host_store) own.host_store = c10::make_intrusive<c10d::PrefixStore>(part, request.host_store);
  return own;
}

}  // namespace

RegisteredBackend beside_control(BackendFactory device, const EngineTraits& traits,
                                 CombinedBackend::CardOf card_of) {
  const auto make = [device = std::move(device), traits,
                     card_of = std::move(card_of)](const BackendRequest& request) {
    // First, so that a build or host without the engine says so before ranks meet.
    const auto engine = device(part_of(request, "device"));
    Communicator control = request.make(engine_of_auto(request.one_host()), part_of(request, "control"));
    return c10::make_intrusive<CombinedBackend>(request, std::move(control), Communicator{engine, traits},
                                                card_of);
  };
  return {make, {.device_tensors = true}, true};
}

RegisteredBackend NcclFolder::engine(const Options& /*none*/) {
  return beside_control(make_nccl_backend, kNcclTraits, card_of);
}

}  // namespace rondo
