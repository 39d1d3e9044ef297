#pragma once

#include "rondo/backend/registry.h"

namespace rondo {

// c10d's ProcessGroupNCCL, for CUDA tensors. It uses the interface named by NCCL_SOCKET_IFNAME. Throws
// UsageError when rondo was built with a libtorch without CUDA, or when there is no GPU.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

// Whether this build has NCCL.
bool have_nccl();

}  // namespace rondo
