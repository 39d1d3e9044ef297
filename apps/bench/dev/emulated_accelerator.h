#pragma once

#include <torch/nn.h>

#include <vector>

#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"

// An accelerator that is not there: its units take times in which the processor is free. Pipelines and
// strategies of more ranks than the machine has processors are tried with it.
namespace rondo::bench {

struct EmulatedTimes {
  Duration forward{};          // of a unit
  Duration input_gradient{};   // in its backward pass
  Duration weight_gradient{};  // in its backward pass
};

// Returns times of equal length.
EmulatedTimes equal_times(double milliseconds);

// Returns `values` as they are; the forward pass ends times.forward after it began, and the backward pass
// takes the two gradients' times before it goes on. Sleeps: other processes may have the core.
at::Tensor emulated_unit(const at::Tensor& values, const EmulatedTimes& times);

// Returns `values` + `weight`, where the two gradients may also be asked for one after the other, as a
// pipeline does: each takes its own time when it is computed, and none when nobody wants it.
at::Tensor emulated_unit(const at::Tensor& values, const at::Tensor& weight, const EmulatedTimes& times);

// Returns a model named "emulated" of `layers`, in sequence.
Model emulated_model(torch::nn::Sequential layers);

}  // namespace rondo::bench
