// Registers the accelerator with libtorch when the module is loaded: its name, its allocator, its hooks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstring>
#include <utility>

#include "tests/sim/device.h"
#include "tests/sim/generator.h"
#include "tests/sim/memory.h"

namespace rondo::sim {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = current_device();
    if (index >= 0) set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current_device() : index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t size) const override {
    const std::size_t kept = std::min(size, storage.nbytes());
    c10::StorageImpl& implementation = *storage.unsafeGetStorageImpl();
    const c10::DeviceIndex before = exchangeDevice(storage.device().index());
    c10::DataPtr memory = device_allocator().allocate(size);
    exchangeDevice(before);
    if (kept > 0) std::memcpy(host_address(memory.get()), host_address(storage.data()), kept);
    implementation.set_data_ptr_noswap(std::move(memory));
    implementation.set_nbytes(size);
  }
};

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(kSim, &device_allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::register_privateuse1_backend("sim");
  return true;
}();

}  // namespace
}  // namespace rondo::sim
