#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "rondo/backend/engine/request.h"

namespace rondo {

// Traits of NCCL alone: it supports accelerator memory only, and ignores tags.
inline constexpr EngineTraits kNcclTraits = {
    .cpu_tensors = false, .device_tensors = true, .honours_tags = false};

// Difference between the deadline of an engine between accelerators and the group's deadline, which a
// DeviceWatch enforces.
inline constexpr std::chrono::milliseconds kDeviceGrace = std::chrono::minutes(1);

// Makes c10d's ProcessGroupNCCL, for CUDA tensors, from the module rondo_nccl.so. NCCL uses the interface
// named by NCCL_SOCKET_IFNAME. Throws UsageError if there is no module (rondo was built without NCCL), if
// libtorch's CUDA library cannot be loaded, if versions of NCCL are incompatible, and without a GPU.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

// Returns the request for one of several engines that together serve the group of `request`: its keys in the
// group's stores begin with `part`.
inline BackendRequest part_of(const BackendRequest& request, const std::string& part) {
  BackendRequest own = request;
  own.store = c10::make_intrusive<c10d::PrefixStore>(part, request.store);
  if (request.host_store) own.host_store = c10::make_intrusive<c10d::PrefixStore>(part, request.host_store);
  return own;
}

}  // namespace rondo
