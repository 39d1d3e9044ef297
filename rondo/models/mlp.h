#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <vector>

#include "rondo/nn/layers.h"

namespace rondo {

// Widths of a perceptron.
struct MlpConfig {
  std::int64_t inputs = 784;                     // features of a sample
  std::vector<std::int64_t> hidden = {128, 64};  // may be empty: a linear classifier
  std::int64_t classes = 10;                     // number of classes
};

// Fully connected layers with ReLU between them. Input [samples, ...] is flattened to [samples, inputs]; the
// result is logits [samples, classes]. Wrapping rules can make units of the layers (nn/wrap.h).
class MlpImpl : public torch::nn::Module, public LayerSequence {
 public:
  // Initialises weights as nn::Linear does.
  explicit MlpImpl(const MlpConfig& config = {});
  // Maps [samples, ...] with `inputs` values per sample to logits [samples, classes]. Throws UsageError for
  // another number of values.
  at::Tensor forward(const at::Tensor& input);
  const MlpConfig& config() const { return config_; }  // configuration of the model
  std::vector<ModelLayer> layers() override;           // "layers.0", ..., each with its activation

 private:
  at::Tensor flatten(const at::Tensor& input) const;
  at::Tensor forward_layer(std::size_t layer, const at::Tensor& input);
  MlpConfig config_;
  torch::nn::Sequential layers_{nullptr};  // linear layers only
};
TORCH_MODULE(Mlp);

}  // namespace rondo
