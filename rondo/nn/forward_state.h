#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace rondo {

// What decides a forward pass besides its inputs and the parameters: where the random generators stand, and
// autocast. Taken before a pass, it lets the same pass run again later. One thread uses an object.
class ForwardState {
 public:
  struct AutocastState {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };

  // As it is now on this thread: the CPU's generator and those of the inputs' devices.
  explicit ForwardState(const std::vector<at::Tensor>& inputs);

  // As long as it lives, the thread is in that state; afterwards in the one before.
  class Restored {
   public:
    explicit Restored(const ForwardState& state);
    ~Restored();
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;

   private:
    std::vector<std::pair<at::Generator, at::Tensor>> generators_;
    std::vector<AutocastState> autocast_;
  };

  // As long as it lives, autocast keeps no casts of weights: one that was made in a pass whose graph is
  // dropped must not be met again outside it.
  class WithoutCastCache {
   public:
    WithoutCastCache();
    ~WithoutCastCache();
    WithoutCastCache(const WithoutCastCache&) = delete;
    WithoutCastCache& operator=(const WithoutCastCache&) = delete;

   private:
    bool enabled_;
  };

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<AutocastState> autocast_;
};

}  // namespace rondo
