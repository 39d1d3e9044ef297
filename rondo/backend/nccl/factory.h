#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "rondo/backend/engine/request.h"

namespace rondo {

// Traits of NCCL alone: it moves the memory of accelerators only, and ignores tags.
inline constexpr EngineTraits kNcclTraits = {
    .cpu_tensors = false, .device_tensors = true, .honours_tags = false};

// An engine between accelerators has a deadline that is so much later than the group's, which a DeviceWatch
// keeps.
inline constexpr std::chrono::milliseconds kDeviceGrace = std::chrono::minutes(1);

// Makes c10d's ProcessGroupNCCL, for CUDA tensors, by the module rondo_nccl.so. It uses the interface named
// by NCCL_SOCKET_IFNAME. Throws UsageError where the module is not there (rondo was built without NCCL),
// where libtorch's CUDA library cannot be loaded, where versions of NCCL do not go together, and without a
// GPU.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

// Returns the request for one of several engines that serve the group of `request` together: its keys in the
// group's stores begin with `part`.
inline BackendRequest part_of(const BackendRequest& request, const std::string& part) {
  BackendRequest own = request;
  own.store = c10::make_intrusive<c10d::PrefixStore>(part, request.store);
  if (request.host_store) own.host_store = c10::make_intrusive<c10d::PrefixStore>(part, request.host_store);
  return own;
}

}  // namespace rondo
