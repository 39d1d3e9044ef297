#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

#include "rondo/nn/layers.h"

namespace rondo {

// The shape of images and of the network.
struct ConvnetConfig {
  std::int64_t channels = 1;                      // of an image
  std::int64_t height = 28;                       // of an image, in pixels
  std::int64_t width = 28;                        // of an image, in pixels
  std::int64_t classes = 10;                      // of the result
  std::vector<std::int64_t> features = {16, 32};  // output channels of each block
  std::int64_t hidden = 64;                       // width of the layer before the classifier
  bool batch_norm = false;                        // after each convolution
  double dropout = 0.0;                           // before the last layer
};

// A small convolutional network: per block a 3x3 convolution, batch normalisation if asked for, ReLU and 2x2
// maximum pooling; then two fully connected layers, with dropout between if asked for. Input [samples,
// channels, height, width], result logits [samples, classes].
class ConvnetImpl : public torch::nn::Module, public LayerSequence {
 public:
  // Throws UsageError when the image is too small for the number of blocks.
  explicit ConvnetImpl(const ConvnetConfig& config = {});
  at::Tensor forward(const at::Tensor& input);  // [samples, channels, height, width] to [samples, classes]
  const ConvnetConfig& config() const { return config_; }  // what it was made of
  // Children of "features" and "classifier"; the first of these flattens.
  std::vector<ModelLayer> layers() override;

 private:
  ConvnetConfig config_;
  torch::nn::Sequential features_{nullptr};
  torch::nn::Sequential classifier_{nullptr};
};
TORCH_MODULE(Convnet);

}  // namespace rondo
