#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace rondo::sim {

inline constexpr c10::DeviceType kSim = c10::DeviceType::PrivateUse1;
inline constexpr int kMostDevices = 16;
inline constexpr int kStreams = 4;  // per device; 0 is the default stream

// Returns the number of devices of this process: RONDO_SIM_DEVICES, 4 by default.
int device_count();

// Returns the calling thread's current device, initially 0.
c10::DeviceIndex current_device();
// Throws c10::Error if there is no such device.
void set_current_device(c10::DeviceIndex index);

// Returns the calling thread's current stream of a device; index -1: the current device.
c10::Stream current_stream(c10::DeviceIndex index);
void set_current_stream(const c10::Stream& stream);

}  // namespace rondo::sim
