#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <string>

namespace rondo {

// The CUDA devices that libtorch offers to this process.
struct VisibleDevices {
  bool cuda_build = false;  // libtorch is a CUDA build
  int cuda = 0;             // number of devices
  std::string refusal{};    // reason why the CUDA library is unusable despite cards
};

// Returns the number of devices of a type that libtorch sees; 0 for an unknown type. For CUDA, loads
// libtorch's CUDA library if the driver has devices (load_cuda() in cards.h, with its errors). Any thread.
int device_count(c10::DeviceType type);

// Queries libtorch's CUDA devices; loads its CUDA library if the driver has cards. Any thread.
VisibleDevices visible_devices();

// Makes `device` the current device of the calling thread and, until the next call there, of the threads that
// rondo starts from it (replica_thread() of rondo/base/replica.h): those of engines, loaders, queues and
// savers. On a rank's threads "cuda" without a number means the rank's own device, and tensors, streams and
// events are created on it. Changes nothing in libtorch for the CPU. Any thread.
void set_current_device(c10::Device device);

// Returns the calling thread's device: set by set_current_device(), or inherited from the thread that started
// it; initially the CPU.
c10::Device current_device();

// Returns the calling thread's current stream on `device`, an accelerator.
c10::Stream current_stream(c10::Device device);

// Records and returns an event after all work queued so far on the calling thread's current stream of
// `device`, an accelerator: Event::query() returns whether the device has completed that work.
c10::Event record_event(c10::Device device);

}  // namespace rondo
