// libtorch's interface to devices, streams and events: c10::DeviceGuard, c10::Stream, c10::Event and
// autograd's threads call it.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tests/sim/device.h"
#include "tests/sim/launch.h"
#include "tests/sim/streams.h"

namespace rondo::sim {
namespace {

using Clock = std::chrono::steady_clock;

// An event. Earlier operators have completed when it is recorded; collectives may still be in flight.
struct Event {
  Clock::time_point recorded;
  StreamWorks before;
};

bool has_ended(const StreamWorks& works) {
  return std::all_of(works.begin(), works.end(), [](const auto& work) { return work->has_ended(); });
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = kSim;

  c10::DeviceType type() const override { return kSim; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::Device getDevice() const override { return {kSim, current_device()}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    if (device.index() >= 0) set_current_device(device.index());
    return before;
  }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    static std::atomic<int> next{0};
    return stream_of(device, 1 + next++ % (kStreams - 1));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override { return has_ended(works_before(stream)); }
  void synchronizeStream(const c10::Stream& stream) const override {
    on_synchronise();
    finish(stream);
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    on_synchronise();
    finish_device(index < 0 ? current_device() : index);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = {Clock::now(), works_before(stream)};
  }
  void block(void* event, const c10::Stream& stream) const override {
    put_behind(stream, static_cast<Event*>(event)->before);
  }
  bool queryEvent(void* event) const override { return has_ended(static_cast<Event*>(event)->before); }
  void synchronizeEvent(void* event) const override {
    on_synchronise();
    for (const auto& work : static_cast<Event*>(event)->before) work->wait();
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex /*index*/) const override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(second)->recorded -
                                                     static_cast<Event*>(first)->recorded)
        .count();
  }

 private:
  c10::Stream stream_of(c10::Device device, c10::StreamId id) const {
    return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : getDevice(), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace rondo::sim
