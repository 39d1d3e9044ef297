#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "rondo/strategy/reducer.h"

namespace rondo {

// For as long as it lives, hands each parameter to `reducer` whenever a backward pass has accumulated its
// gradient into `.grad`, on the thread that runs that part of backward. Hooks that somebody installed before
// keep being called, first. Not to be made or destroyed during a backward pass.
class GradientHooks {
 public:
  GradientHooks(std::vector<at::Tensor> parameters, Reducer& reducer);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<Reducer*> target_;  // null after destruction: a hook that could not be removed does nothing
};

}  // namespace rondo
