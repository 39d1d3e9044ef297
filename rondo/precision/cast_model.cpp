#include "rondo/precision/cast_model.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace rondo {
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
  // Not by modules(), which wants the outermost module in a shared_ptr.
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
