#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "rondo/nn/model_tensors.h"

namespace rondo {

// For as long as it lives, tells the number of each parameter whose gradient a backward pass has accumulated
// into `.grad`, on the thread that runs that part of backward. Hooks that somebody installed before keep
// being called, first. Not to be made or destroyed during a backward pass.
class GradientHooks {
 public:
  using Arrived = std::function<void(std::size_t parameter)>;

  // `is_sole`: nobody else may combine gradients of the parameters (require_unprepared()).
  GradientHooks(const std::vector<ModelTensor>& parameters, Arrived arrived, bool is_sole = true);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<ModelTensor> parameters_;
  std::shared_ptr<Arrived>
      arrived_;  // empty after destruction: a hook that could not be removed does nothing
};

// Throws UsageError when one of the parameters has a sole GradientHooks that lives: a prepared model or a
// DistributedDataParallel has taken charge of it.
void require_unprepared(const std::vector<ModelTensor>& parameters);

}  // namespace rondo
