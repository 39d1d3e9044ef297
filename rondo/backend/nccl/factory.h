#pragma once

#include "rondo/backend/engine/request.h"

namespace rondo {

// Traits of NCCL alone: it moves the memory of accelerators only.
inline constexpr EngineTraits kNcclTraits = {.cpu_tensors = false, .device_tensors = true};

// c10d's ProcessGroupNCCL, for CUDA tensors. It uses the interface named by NCCL_SOCKET_IFNAME. Throws
// UsageError when rondo was built with a libtorch without CUDA, or when there is no GPU.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

// The PCI address of a CUDA device with the host's name: the same text in every process that uses the card.
std::string card_of(c10::Device device);

// Whether this build has NCCL.
bool have_nccl();

}  // namespace rondo
