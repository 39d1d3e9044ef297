#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>

namespace rondo::sim {

// Device memory is in this process, mapped twice: at a device tensor's address, without read and write
// permission, and at the address that host_address() returns. A program that uses a device's address on the
// host ends with a segmentation fault, after a line on standard error with the reason. The first allocation
// of a process creates both mappings; a process forked after it ends.

// Returns the address at which the device's operators access the memory of a device address.
void* host_address(const void* address);

// Returns device memory with the content of `size` bytes of host memory.
c10::DataPtr to_device(const void* content, std::size_t size, c10::DeviceIndex device);

// Allocates on the calling thread's current device.
c10::Allocator& device_allocator();

}  // namespace rondo::sim
