#pragma once

#include <torch/nn/module.h>

namespace rondo {

// torch::nn::BatchNorm1d to 3d and every module with a running_mean.
bool is_batch_norm(const torch::nn::Module& module);

// Turns the float parameters and buffers of `model` into `dtype`, in place: they stay the same tensors to
// whoever holds them. With `keep_batchnorm_fp32` batch norms stay as they are.
void cast_model(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32);

// The same for the buffers alone, where somebody else casts parameters.
void cast_buffers(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32);

}  // namespace rondo
