#include "rondo/parallel/sharded/sparse_gradients.h"

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

}  // namespace rondo
