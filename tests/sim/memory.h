#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>

namespace rondo::sim {

// Device memory lies in this process, mapped twice: at the address that a tensor on a device has, where
// neither reading nor writing is allowed, and at the one that host_address() returns. A program that uses a
// device's address on the host ends with a segmentation fault, after a line on standard error that says so.
// The two are made by the first allocation of a process; a process that was forked after it ends.

// The address at which the operators of the device find the memory of a device's address.
void* host_address(const void* address);

// Memory of a device with the content of `size` bytes of host memory.
c10::DataPtr to_device(const void* content, std::size_t size, c10::DeviceIndex device);

// Allocates on the calling thread's current device.
c10::Allocator& device_allocator();

}  // namespace rondo::sim
