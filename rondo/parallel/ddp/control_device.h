#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/backend/group.h"

namespace rondo {

// Where a group's engine wants small control messages: NCCL moves GPU memory only, all others take the CPU's.
inline at::Device control_device(const Group& group) {
  return group.backend()->getBackendName() == "nccl" ? at::kCUDA : at::kCPU;
}

}  // namespace rondo
