#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace rondo {

// The state of libtorch's default generators that a process training on `device` draws from (the CPU's, and
// the device's own), as one uint8 tensor on the CPU.
at::Tensor random_state(c10::Device device = c10::kCPU);

// Puts back what random_state() returned. Between the CPU and CUDA only the CPU's generator is put back, and
// the device's stays as it is. Throws DataError when the state does not fit.
void set_random_state(const at::Tensor& state, c10::Device device = c10::kCPU);

}  // namespace rondo
