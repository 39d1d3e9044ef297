#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <vector>

#include "rondo/nn/layers.h"

namespace rondo {

// The widths of a perceptron.
struct MlpConfig {
  std::int64_t inputs = 784;                     // features of a sample
  std::vector<std::int64_t> hidden = {128, 64};  // may be empty: a linear classifier
  std::int64_t classes = 10;                     // of the result
};

// Fully connected layers with ReLU between them. Input [samples, ...] is flattened to [samples, inputs]; the
// result is logits [samples, classes]. Wrapping rules can make units of the layers (nn/wrap.h).
class MlpImpl : public torch::nn::Module, public LayerSequence {
 public:
  // Weights start as those of nn::Linear.
  explicit MlpImpl(const MlpConfig& config = {});
  // [samples, ...] with `inputs` values a sample to logits [samples, classes]; throws
  // UsageError for another number of values.
  at::Tensor forward(const at::Tensor& input);
  const MlpConfig& config() const { return config_; }  // what it was made of
  std::vector<ModelLayer> layers() override;           // "layers.0", ..., with what is between

 private:
  at::Tensor flatten(const at::Tensor& input) const;
  at::Tensor forward_layer(std::size_t layer, const at::Tensor& input);
  MlpConfig config_;
  torch::nn::Sequential layers_{nullptr};  // of linear layers alone
};
TORCH_MODULE(Mlp);

}  // namespace rondo
