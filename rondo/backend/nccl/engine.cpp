#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

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

c10::intrusive_ptr<c10d::Backend> make_nccl_with_control(const BackendRequest& request) {
  // First, so that a build or host without NCCL says so before ranks meet.
  const auto nccl = make_nccl_backend(part_of(request, "nccl"));
  Communicator control = request.make(engine_of_auto(request.one_host()), part_of(request, "control"));
  return c10::make_intrusive<CombinedBackend>(request, std::move(control), Communicator{nccl, kNcclTraits},
                                              card_of);
}

}  // namespace

RegisteredBackend NcclFolder::engine(const Options& /*none*/) {
  return {make_nccl_with_control, {.device_tensors = true}, true};
}

}  // namespace rondo
