#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

namespace rondo {

// A scope in which libtorch's autocast is active on this thread. Operations on the device's lower-precision
// list (matrix products, convolutions, ...) compute in `dtype`, operations on its float32 list in float32,
// and all others in the dtype of their inputs. Weights keep their dtype. Wrap the forward pass and the loss;
// the backward pass runs outside and uses each operation's forward dtype. Scopes nest; the innermost one is
// active.
class Autocast {
 public:
  // Throws UsageError for a dtype that the device's autocast does not support (CPU: float16 and bfloat16 are
  // supported). `enabled` = false turns autocast off instead, as PyTorch's enabled=False does.
  Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  at::ScalarType former_dtype_;
};

// Returns whether `module` is a torch::nn::BatchNorm1d to 3d or has a running_mean.
bool is_batch_norm(const torch::nn::Module& module);

// Casts the floating-point parameters and buffers of `model` to `dtype` in place: existing references to
// these tensors stay valid. With `keep_batchnorm_fp32` batch norms keep their dtype.
void cast_model(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32);

// Casts the buffers only, for callers that cast the parameters elsewhere.
void cast_buffers(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32);

}  // namespace rondo
