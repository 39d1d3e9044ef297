#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "rondo/base/time.h"

namespace rondo::bench {

// What a unit takes on an accelerator that is not there: times in which the processor is free.
struct EmulatedTimes {
  Duration forward{};          // of a unit
  Duration input_gradient{};   // in its backward pass
  Duration weight_gradient{};  // in its backward pass
};

// `values` as they are; the forward pass ends times.forward after it began, and the backward pass takes the
// two gradients' times before it goes on to what stands before. Sleeps: other processes may have the core.
at::Tensor emulated_unit(const at::Tensor& values, const EmulatedTimes& times);
// `values` + `weight`, where the two gradients may also be asked for one after the other, as a pipeline does:
// each takes its own time when it is computed, and none when nobody wants it.
at::Tensor emulated_unit(const at::Tensor& values, const at::Tensor& weight, const EmulatedTimes& times);

}  // namespace rondo::bench
