#include "rondo/device/current_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "rondo/base/replica.h"

namespace rondo {
namespace {

thread_local c10::Device device_of_thread = c10::kCPU;

std::function<void()> carry_device() {
  if (device_of_thread.is_cpu()) return {};
  return [device = device_of_thread] { set_current_device(device); };
}

}  // namespace

void set_current_device(c10::Device device) {
  device_of_thread = device;
  if (device.is_cpu()) return;
  carry_over_to_threads(&carry_device);
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

c10::Device current_device() { return device_of_thread; }

}  // namespace rondo
