#include "rondo/nn/forward_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <mutex>

namespace rondo {
namespace {

at::Tensor state_of(at::Generator& generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

ForwardState::AutocastState autocast_of(c10::DeviceType device) {
  return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
}

void set_autocast(const ForwardState::AutocastState& state) {
  at::autocast::set_autocast_enabled(state.device, state.enabled);
  at::autocast::set_autocast_dtype(state.device, state.dtype);
}

}  // namespace

ForwardState::ForwardState(const std::vector<at::Tensor>& inputs) {
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || std::find(devices.begin(), devices.end(), input.device()) != devices.end())
      continue;
    devices.push_back(input.device());
  }
  for (const c10::Device device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    at::Tensor state = state_of(generator);
    generators_.emplace_back(std::move(generator), std::move(state));
    autocast_.push_back(autocast_of(device.type()));
  }
}

ForwardState::Restored::Restored(const ForwardState& state) {
  for (const auto& [generator, then] : state.generators_) {
    at::Generator handle = generator;
    generators_.emplace_back(handle, state_of(handle));
    set_state(handle, then);
  }
  for (const AutocastState& then : state.autocast_) {
    autocast_.push_back(autocast_of(then.device));
    set_autocast(then);
  }
}

ForwardState::Restored::~Restored() {
  for (auto& [generator, before] : generators_) set_state(generator, before);
  for (const AutocastState& before : autocast_) set_autocast(before);
}

ForwardState::WithoutCastCache::WithoutCastCache() : enabled_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

ForwardState::WithoutCastCache::~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(enabled_); }

}  // namespace rondo
