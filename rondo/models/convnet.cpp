#include "rondo/models/convnet.h"

#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/config_reader.h"
#include "rondo/models/model_families.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/linear.h"
#include "rondo/nn/sample_dropout.h"

namespace rondo {

ConvnetImpl::ConvnetImpl(const ConvnetConfig& config) : config_(config) {
  features_ = register_module("features", torch::nn::Sequential());
  classifier_ = register_module("classifier", torch::nn::Sequential());
  std::int64_t channels = config.channels, height = config.height, width = config.width;
  for (const std::int64_t next : config.features) {
    // Batch normalisation has its own bias.
    features_->push_back(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, next, 3).padding(1).bias(!config.batch_norm)));
    if (config.batch_norm) features_->push_back(torch::nn::BatchNorm2d(next));
    features_->push_back(torch::nn::ReLU());
    features_->push_back(torch::nn::MaxPool2d(2));
    channels = next;
    height /= 2;
    width /= 2;
  }
  if (height < 1 || width < 1) {
    throw UsageError(str("convnet: an image of ", config.height, "x", config.width,
                         " is too small to be halved by each of ", config.features.size(), " blocks"));
  }
  classifier_->push_back(nn::Linear(channels * height * width, config.hidden));
  classifier_->push_back(torch::nn::ReLU());
  // Named, so that the layers around it keep their names.
  if (config.dropout > 0) classifier_->push_back("dropout", SampleDropout(config.dropout));
  classifier_->push_back("2", nn::Linear(config.hidden, config.classes));
}

namespace {

at::Tensor flatten_features(const at::Tensor& features) {
  // Avoids flatten(), whose -1 is undefined for an empty batch.
  return features.reshape({features.size(0), features.size(1) * features.size(2) * features.size(3)});
}

}  // namespace

std::vector<ModelLayer> ConvnetImpl::layers() {
  std::vector<ModelLayer> layers = layers_of(*features_, "features");
  std::vector<ModelLayer> classifier = layers_of(*classifier_, "classifier");
  classifier.front().forward = [first = classifier.front().forward](const at::Tensor& features) {
    return first(flatten_features(features));
  };
  layers.insert(layers.end(), classifier.begin(), classifier.end());
  return layers;
}

at::Tensor ConvnetImpl::forward(const at::Tensor& input) {
  if (input.dim() != 4 || input.size(1) != config_.channels || input.size(2) != config_.height ||
      input.size(3) != config_.width) {
    throw UsageError(str("convnet: input of shape [", join(input.sizes(), ", "), "], expected [samples, ",
                         config_.channels, ", ", config_.height, ", ", config_.width, "]"));
  }
  const at::Tensor features = config_.features.empty() ? input : features_->forward(input);
  return classifier_->forward(flatten_features(features));
}

nlohmann::json ConvnetFamily::defaults(const std::string& /*name*/) {
  return {{"input_shape", {1, 28, 28}}, {"features", {16, 32}}, {"hidden", 64}, {"classes", 10},
          {"batch_norm", false},        {"dropout", 0.0}};
}

BuiltModel ConvnetFamily::make(const ConfigReader& config) {
  const std::vector<std::int64_t> shape = config.positives("input_shape");
  if (shape.size() != 3) config.fail("input_shape", "[channels, height, width]: this model needs images");
  return built(std::make_shared<ConvnetImpl>(ConvnetConfig{.channels = shape[0],
                                                           .height = shape[1],
                                                           .width = shape[2],
                                                           .classes = config.positive("classes"),
                                                           .features = config.positives("features"),
                                                           .hidden = config.positive("hidden"),
                                                           .batch_norm = config.boolean("batch_norm"),
                                                           .dropout = config.number("dropout")}));
}

std::unique_ptr<ModelSetup> ConvnetFamily::setup(const Options& options) {
  nlohmann::json settings = nlohmann::json::object();
  if (options.dropout) settings["dropout"] = *options.dropout;
  return std::make_unique<ModelSetup>(std::move(settings), "samples");
}

}  // namespace rondo
