#pragma once

#include "rondo/backend/engine/cards.h"
#include "rondo/backend/engine/request.h"

namespace rondo {

// Traits of NCCL alone: it moves the memory of accelerators only, and ignores tags.
inline constexpr EngineTraits kNcclTraits = {
    .cpu_tensors = false, .device_tensors = true, .honours_tags = false};

// c10d's ProcessGroupNCCL, for CUDA tensors. It uses the interface named by NCCL_SOCKET_IFNAME. Throws
// UsageError when rondo was built with a libtorch without CUDA, or when there is no GPU.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

}  // namespace rondo
