#pragma once

#include <c10/core/Device.h>

#include <string>

namespace rondo {

// The CUDA devices that libtorch offers to this process.
struct VisibleDevices {
  bool cuda_build = false;  // libtorch is a CUDA build
  int cuda = 0;             // number of devices
  std::string refusal{};    // why libtorch's CUDA library cannot be used although there are cards
};

// Returns the number of devices of a type that libtorch sees; 0 where it does not know the type. Loads
// libtorch's CUDA library (load_cuda() in cards.h, whose errors it throws) where CUDA's devices are asked for
// and the driver has some. Any thread.
int device_count(c10::DeviceType type);

// Asks libtorch for CUDA devices, and loads its CUDA library where the driver has cards. Any thread.
VisibleDevices visible_devices();

}  // namespace rondo
