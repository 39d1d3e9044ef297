#include "rondo/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/precision/options.h"

namespace rondo {

Autocast::Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      former_dtype_(at::autocast::get_autocast_dtype(device)) {
  if (enabled && !is_half_width(dtype)) {
    throw UsageError(str("autocast computes in float16 or bfloat16, not in ", c10::toString(dtype)));
  }
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // The cache holds casts of this step's weights; the next step has other weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, former_dtype_);
}

namespace {

void cast(const at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.defined() && tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
}

}  // namespace

bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr ||
         module.named_buffers(/*recurse=*/false).contains("running_mean");
}

void cast_buffers(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32) {
  const torch::NoGradGuard no_gradients;
  // Avoids modules(), which requires that a shared_ptr owns the outermost module.
  for (const auto& child : model.children()) cast_buffers(*child, dtype, keep_batchnorm_fp32);
  if (keep_batchnorm_fp32 && is_batch_norm(model)) return;
  for (const at::Tensor& buffer : model.buffers(/*recurse=*/false)) cast(buffer, dtype);
}

void cast_model(torch::nn::Module& model, at::ScalarType dtype, bool keep_batchnorm_fp32) {
  const torch::NoGradGuard no_gradients;
  for (const auto& child : model.children()) cast_model(*child, dtype, keep_batchnorm_fp32);
  if (keep_batchnorm_fp32 && is_batch_norm(model)) return;
  for (const at::Tensor& parameter : model.parameters(/*recurse=*/false)) cast(parameter, dtype);
  for (const at::Tensor& buffer : model.buffers(/*recurse=*/false)) cast(buffer, dtype);
}

}  // namespace rondo
