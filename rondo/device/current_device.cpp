#include "rondo/device/current_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "rondo/base/replica.h"

namespace rondo {
namespace {

thread_local c10::Device device_of_thread = c10::kCPU;

}  // namespace

void set_current_device(c10::Device device) {
  device_of_thread = device;
  if (device.is_cpu()) return set_thread_setup({});
  set_thread_setup([device] { set_current_device(device); });
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

c10::Device current_device() { return device_of_thread; }

}  // namespace rondo
