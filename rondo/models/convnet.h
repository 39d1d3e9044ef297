#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

namespace rondo {

struct ConvnetConfig {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t classes = 10;
  std::vector<std::int64_t> features = {16, 32};  // output channels of each block
  std::int64_t hidden = 64;                       // width of the layer before the classifier
  bool batch_norm = false;
  double dropout = 0.0;  // before the last layer
};

// A small convolutional network: per block a 3x3 convolution, batch normalisation if asked for, ReLU and 2x2
// maximum pooling; then two fully connected layers, with dropout between if asked for. Input [samples,
// channels, height, width], result logits [samples, classes].
class ConvnetImpl : public torch::nn::Module {
 public:
  // Throws UsageError when the image is too small for the number of blocks.
  explicit ConvnetImpl(const ConvnetConfig& config = {});
  at::Tensor forward(const at::Tensor& input);
  const ConvnetConfig& config() const { return config_; }

 private:
  ConvnetConfig config_;
  torch::nn::Sequential features_{nullptr};
  torch::nn::Sequential classifier_{nullptr};
};
TORCH_MODULE(Convnet);

}  // namespace rondo
