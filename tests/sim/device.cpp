#include "tests/sim/device.h"

#include <array>
#include <cstdlib>
#include <string>

namespace rondo::sim {
namespace {

thread_local c10::DeviceIndex thread_device = 0;
thread_local std::array<c10::StreamId, kMostDevices> thread_streams{};

std::size_t place_of(c10::DeviceIndex index) {
  return static_cast<std::size_t>(index < 0 ? thread_device : index);
}

}  // namespace

int device_count() {
  static const int count = [] {
    const char* const given = std::getenv("RONDO_SIM_DEVICES");
    const int number = given != nullptr ? std::atoi(given) : 4;
    TORCH_CHECK(number >= 1 && number <= kMostDevices, "RONDO_SIM_DEVICES=", given, ": expected 1 to ",
                kMostDevices);
    return number;
  }();
  return count;
}

c10::DeviceIndex current_device() { return thread_device; }

void set_current_device(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "simulated accelerator: there is no device ",
              static_cast<int>(index), "; the number of devices is ", device_count());
  thread_device = index;
}

c10::Stream current_stream(c10::DeviceIndex index) {
  const std::size_t place = place_of(index);
  return c10::Stream(c10::Stream::UNSAFE, {kSim, static_cast<c10::DeviceIndex>(place)},
                     thread_streams[place]);
}

void set_current_stream(const c10::Stream& stream) {
  thread_streams[place_of(stream.device_index())] = stream.id();
}

}  // namespace rondo::sim
