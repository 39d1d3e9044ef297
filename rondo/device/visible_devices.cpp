#include "rondo/device/visible_devices.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "rondo/base/error.h"
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

}  // namespace rondo
