#pragma once

#include <torch/nn.h>

#include <vector>

#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"

// An emulated accelerator: its units take time during which the processor is free. It allows pipelines and
// strategies with more ranks than the machine has processors.
namespace rondo::bench {

struct EmulatedTimes {
  Duration forward{};          // per unit
  Duration input_gradient{};   // time of the input gradient in the backward pass
  Duration weight_gradient{};  // time of the weight gradient in the backward pass
};

// Returns times of equal length.
EmulatedTimes equal_times(double milliseconds);

// Returns `values` unchanged. The forward pass ends times.forward after its start; the backward pass takes
// both gradients' times. Sleeps, so other processes can use the core.
at::Tensor emulated_unit(const at::Tensor& values, const EmulatedTimes& times);

// Returns `values` + `weight`. The two gradients can also be requested separately, as a pipeline does. Each
// takes its time when it is computed, and none if it is not requested.
at::Tensor emulated_unit(const at::Tensor& values, const at::Tensor& weight, const EmulatedTimes& times);

// Returns a model named "emulated" of `layers`, in sequence.
Model emulated_model(torch::nn::Sequential layers);

}  // namespace rondo::bench
