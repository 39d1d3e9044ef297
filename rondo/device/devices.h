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
  std::string refusal{};    // why libtorch's CUDA library cannot be used although there are cards
};

// Returns the number of devices of a type that libtorch sees; 0 where it does not know the type. Loads
// libtorch's CUDA library (load_cuda() in cards.h, whose errors it throws) where CUDA's devices are asked for
// and the driver has some. Any thread.
int device_count(c10::DeviceType type);

// Asks libtorch for CUDA devices, and loads its CUDA library where the driver has cards. Any thread.
VisibleDevices visible_devices();

// Makes `device` the current device of the calling thread and, until it is called again there, of the threads
// that rondo starts from it (replica_thread() of rondo/base/replica.h): those of engines, loaders, queues and
// savers. On one of a rank's threads the rank's own device is meant by "cuda" without a number, and tensors,
// streams and events are made there. Does nothing to libtorch for the CPU. Any thread.
void set_current_device(c10::Device device);

// The device that set_current_device() has made the calling thread's, or that the thread which started it
// had; the CPU at first.
c10::Device current_device();

// Returns the calling thread's current stream on `device`, an accelerator.
c10::Stream current_stream(c10::Device device);

// Returns an event behind all work that was queued so far on the calling thread's current stream of `device`,
// an accelerator: Event::query() says whether the device has done it.
c10::Event record_event(c10::Device device);

}  // namespace rondo
