#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace rondo {

// The state of libtorch's default generators that a process training on `device` draws from (the CPU's, and
// the device's own), as one uint8 tensor on the CPU.
at::Tensor random_state(c10::Device device = c10::kCPU);

// Puts back what random_state() returned on the same kind of device. Throws DataError when it does not fit.
void set_random_state(const at::Tensor& state, c10::Device device = c10::kCPU);

}  // namespace rondo
