#pragma once

#include <ATen/core/Tensor.h>

#include "rondo/backend/group.h"

namespace rondo {

// Mean and variance of each feature over the samples of all ranks: float64 [features] on the input's device.
struct JointStatistics {
  at::Tensor mean;
  at::Tensor variance;  // with divisor `count`
  double count = 0;     // values a feature, of all ranks
};

// The statistics of `input` [samples, features, ...] with those of the other ranks. Each rank's mean and
// squared deviations are found first and then merged in rank order (Chan, Golub and LeVeque, "Updating
// formulae and a pairwise algorithm for computing sample variances", 1979), so that a large mean costs no
// digits and all ranks get the same bits. Collective.
JointStatistics joint_statistics(const at::Tensor& input, const Group& group);

struct NormalisationOptions {
  Group group = {};
  double weight = 1;  // of this rank's gradients in the combined gradient
  double epsilon = 1e-5;
};

// (input - mean) / sqrt(variance + epsilon) * weight + bias; weight and bias may be undefined. Backward is
// that of a function of all ranks' inputs: with L_r the loss whose backward pass rank r runs and w_r its
// weight, the gradient of sum_r w_r L_r with regard to this rank's input, divided by this rank's weight (with
// which the strategy multiplies it when it combines gradients). Gradients of weight and bias are this rank's
// part. Backward is collective; it cannot be differentiated again.
at::Tensor normalise(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const JointStatistics& statistics, const NormalisationOptions& options);

}  // namespace rondo
