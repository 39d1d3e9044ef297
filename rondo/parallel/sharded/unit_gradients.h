#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/parallel/gradients/gradient_weight.h"
#include "rondo/parallel/schedule/block.h"

namespace rondo {

// The way of the gradients of one unit (of one dtype) from `.grad` of its parameters on every rank to where
// the optimizer wants their weighted sum: for ddp whole, otherwise this rank's shard. One thread.
class UnitGradients {
 public:
  virtual ~UnitGradients() = default;

  // All gradients of a backward pass are there: takes them out of `.grad` (a missing one is zero) and starts
  // their combination. Never waits. `order` places it among other units' communication.
  virtual void launch(const GradientWeight& weight, const BlockOrder& order) = 0;
  // Whether combining has been launched and not yet taken by finish().
  virtual bool launched() const = 0;
  // Whether finish() would not wait.
  virtual bool arrived() = 0;
  // Waits. The sum is then in result(), added to what was there if `accumulate`.
  virtual void finish(bool accumulate) = 0;

  // One tensor for each parameter of the unit, in its order: the part of its gradient that this rank
  // optimises, flat (maybe empty), or for ddp all of it in the parameter's shape. Undefined before the first
  // finish() and after drop().
  virtual const std::vector<at::Tensor>& result() const = 0;
  // Forgets the result: it is where the optimizer looks.
  virtual void drop() = 0;
  // The optimizer is through with it, and nobody else has it: its memory may be used again.
  virtual void recycle() {}
  // What is remembered from pass to pass (a codec's error feedback), by name: the tensors themselves, always
  // of the same sizes.
  virtual std::map<std::string, at::Tensor> memory() const { return {}; }
};

}  // namespace rondo
