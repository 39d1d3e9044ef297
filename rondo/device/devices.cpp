#include "rondo/device/devices.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "rondo/base/error.h"
#include "rondo/base/replica.h"
#include "rondo/device/cards.h"

namespace rondo {

int device_count(c10::DeviceType type) {
  if (type == c10::kCUDA && is_cuda_build() && driver_card_count() > 0) load_cuda();
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::getDeviceGuardImpl(type)->deviceCount() : 0;
}

VisibleDevices visible_devices() {
  VisibleDevices visible{.cuda_build = is_cuda_build()};
  try {
    visible.cuda = device_count(c10::kCUDA);
  } catch (const Error& error) {
    visible.refusal = error.what();
  }
  return visible;
}

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

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event record_event(c10::Device device) {
  c10::Event event(device.type());
  event.record(current_stream(device));
  return event;
}

}  // namespace rondo
