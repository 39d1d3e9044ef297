#include "rondo/device/stream_event.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace rondo {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

c10::Event record_event(c10::Device device) {
  c10::Event event(device.type());
  event.record(current_stream(device));
  return event;
}

}  // namespace rondo
