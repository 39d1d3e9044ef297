#pragma once

#include <c10/core/Device.h>

namespace rondo {

// Makes `device` the current device of the calling thread and, until it is called again there, of the threads
// that rondo starts from it (replica_thread() of rondo/base/replica.h): those of engines, loaders, queues and
// savers. On one of a rank's threads the rank's own device is meant by "cuda" without a number, and tensors,
// streams and events are made there. Does nothing to libtorch for the CPU. Any thread.
void set_current_device(c10::Device device);

// The device that set_current_device() has made the calling thread's, or that the thread which started it
// had; the CPU at first.
c10::Device current_device();

}  // namespace rondo
