#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

namespace rondo {

// libtorch's autocast on this thread for as long as the object lives: operations of its list of the device
// (matrix products, convolutions, ...) compute in `dtype`, those of another list in float32, the rest in the
// type of their inputs. Weights stay as they are. Wrap the forward pass and the loss; the backward pass runs
// outside and takes each operation's forward type. May be nested; the inner one holds while it lives.
class Autocast {
 public:
  // Throws UsageError for a dtype that the device's autocast does not know (CPU: float16, bfloat16).
  // `enabled` false turns autocast off instead, as PyTorch's enabled=False.
  Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType former_dtype_;
};

// torch::nn::BatchNorm1d to 3d and every module with a running_mean.
bool is_batch_norm(const torch::nn::Module& module);

// Turns the float parameters and buffers of `model` into `dtype`, in place: they stay the same tensors to
// whoever holds them. With `keep_batchnorm_fp32` batch norms stay as they are.
void cast_model(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32);

// The same for the buffers alone, where somebody else casts parameters.
void cast_buffers(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32);

}  // namespace rondo
