#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "rondo/nn/model_tensors.h"

namespace rondo {

// Is told of gradients by GradientHooks.
class GradientListener {
 public:
  // A backward pass has completed the gradient of a parameter.
  virtual void arrived(std::size_t parameter) = 0;

 protected:
  ~GradientListener() = default;
};

// For as long as it lives, tells the number of each parameter whose gradient a backward pass has accumulated
// into `.grad`, on the thread that runs that part of backward. Hooks that somebody installed before keep
// being called, first. Not to be made or destroyed during a backward pass.
class GradientHooks {
 public:
  // `listener` outlives the object. `is_sole`: nobody else may combine gradients of the parameters
  // (require_unprepared()).
  GradientHooks(const std::vector<ModelTensor>& parameters, GradientListener& listener, bool is_sole = true);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<ModelTensor> parameters_;
  // Null after destruction: a hook that could not be removed does nothing.
  std::shared_ptr<GradientListener*> listener_;
};

// Throws UsageError when one of the parameters has a sole GradientHooks that lives: a prepared model or a
// DistributedDataParallel has taken charge of it.
void require_unprepared(const std::vector<ModelTensor>& parameters);

}  // namespace rondo
