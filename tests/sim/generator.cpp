#include "tests/sim/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/sim/device.h"

namespace rondo::sim {

Generator::Generator(c10::DeviceIndex device)
    : GeneratorImpl({kSim, device}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

at::Generator Generator::next() {
  // Any function of both that differs from the seed.
  return at::detail::createCPUGenerator((seed_ ^ 0x9E3779B97F4A7C15ULL) + 0xBF58476D1CE4E5B9ULL * ++offset_);
}

void Generator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

std::uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  std::array<std::uint64_t, 2> values{};
  TORCH_CHECK(state.numel() == sizeof values, "simulated accelerator: a generator's state has ",
              sizeof values, " bytes, not ", state.numel());
  std::memcpy(values.data(), state.data(), sizeof values);
  seed_ = values[0];
  offset_ = values[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const std::array<std::uint64_t, 2> values{seed_, offset_};
  const at::Tensor state = at::empty({sizeof values}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), values.data(), sizeof values);
  return state.getIntrusivePtr();
}

Generator* Generator::clone_impl() const {
  auto* const copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int index = 0; index < device_count(); ++index)
      made->push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(index)));
    return made;
  }();
  return generators->at(static_cast<std::size_t>(device < 0 ? current_device() : device));
}

}  // namespace rondo::sim
