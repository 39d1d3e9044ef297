#include "rondo/parallel/sharded/gradient_buffers.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

UsageError sparse_gradient_error(const std::string& parameter) {
  return UsageError(str("the gradient of parameter '", parameter,
                        "' is sparse, which strategies that divide a model (zero1, zero2, zero3, hsdp, ...) "
                        "do not train; make the layer's gradients dense (for Embedding: sparse(false)), or "
                        "train with ddp, mirrored or parameter_server"));
}

void refuse_sparse_layers(const torch::nn::Module& module) {
  for (const SparseLayer& layer : sparse_layers(module)) {
    throw UsageError(str("layer '", layer.name,
                         "' makes sparse gradients (sparse(true)), which strategies that divide a model "
                         "(zero1, zero2, zero3, hsdp, ...) do not train; give it sparse(false), or train it "
                         "with ddp, mirrored or parameter_server"));
  }
}

GradientBuffers::GradientBuffers(const std::vector<ModelTensor>& parameters, at::ScalarType dtype)
    : parameters_(parameters),
      gradient_buffers_(parameters),
      dtype_(dtype),
      apart_(parameters.front().tensor.scalar_type() != dtype) {
  if (!apart_) return;
  for (ModelTensor& buffer : gradient_buffers_) {
    // Has the parameter's shape, but no memory.
    const at::TensorOptions options = buffer.tensor.options().dtype(dtype).requires_grad(false);
    buffer.tensor = at::zeros({}, options).expand(buffer.tensor.sizes());
  }
}

void GradientBuffers::take() {
  for (const ModelTensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && gradient.layout() != at::kStrided) throw sparse_gradient_error(parameter.name);
  }
  if (!apart_) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& from = parameters_[i].tensor.mutable_grad();
    if (!from.defined()) continue;
    at::Tensor& to = gradient_buffers_[i].tensor.mutable_grad();
    if (to.defined()) {
      to.add_(from);
    } else {
      to = from.detach().to(dtype_);
    }
    from.reset();
  }
}

}  // namespace rondo
