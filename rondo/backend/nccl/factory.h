#pragma once

#include "rondo/backend/engine/cards.h"
#include "rondo/backend/engine/request.h"

namespace rondo {

// Traits of NCCL alone: it moves the memory of accelerators only.
inline constexpr EngineTraits kNcclTraits = {.cpu_tensors = false, .device_tensors = true};

// An engine between accelerators has a deadline that is so much later than the group's, which a DeviceWatch
// keeps.
inline constexpr std::chrono::milliseconds kDeviceGrace = std::chrono::minutes(1);

// c10d's ProcessGroupNCCL, for CUDA tensors. It uses the interface named by NCCL_SOCKET_IFNAME. Throws
// UsageError when rondo was built with a libtorch without CUDA, or when there is no GPU.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

}  // namespace rondo
