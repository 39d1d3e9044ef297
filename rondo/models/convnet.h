#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

#include "rondo/nn/layers.h"

namespace rondo {

// Sizes of images and of the network.
struct ConvnetConfig {
  std::int64_t channels = 1;                      // channels of an image
  std::int64_t height = 28;                       // height of an image in pixels
  std::int64_t width = 28;                        // width of an image in pixels
  std::int64_t classes = 10;                      // number of classes
  std::vector<std::int64_t> features = {16, 32};  // output channels of each block
  std::int64_t hidden = 64;                       // width of the layer before the classifier
  bool batch_norm = false;                        // batch normalisation after each convolution
  double dropout = 0.0;                           // probability before the last layer
};

// A small convolutional network. Each block is a 3x3 convolution, optional batch normalisation, ReLU and 2x2
// max pooling. Two fully connected layers follow, with optional dropout between. Input [samples, channels,
// height, width], output logits [samples, classes].
class ConvnetImpl : public torch::nn::Module, public LayerSequence {
 public:
  // Throws UsageError if the image is too small for the number of blocks.
  explicit ConvnetImpl(const ConvnetConfig& config = {});
  at::Tensor forward(const at::Tensor& input);  // [samples, channels, height, width] to [samples, classes]
  const ConvnetConfig& config() const { return config_; }  // configuration of the model
  // Returns the children of "features" and "classifier"; the first of the latter flattens its input.
  std::vector<ModelLayer> layers() override;

 private:
  ConvnetConfig config_;
  torch::nn::Sequential features_{nullptr};
  torch::nn::Sequential classifier_{nullptr};
};
TORCH_MODULE(Convnet);

}  // namespace rondo
