#pragma once

#include <torch/nn.h>
#include <torch/types.h>

#include <mutex>
#include <string>

#include "rondo/models/bert.h"
#include "rondo/models/model.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/nn/unit.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/train/rows.h"

// Small models of every kind in double precision, with dropout if the kind supports it, and data for them.
// Tests compare training on many ranks with training in one process.
namespace rondo::testing {

// A residual block of convolutions with batch normalisation over all ranks and dropout.
struct ConvolutionBlockImpl : torch::nn::Module {
  explicit ConvolutionBlockImpl(std::int64_t channels)
      : convolution(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)),
        norm(channels),
        dropout(0.2) {
    register_module("convolution", convolution);
    register_module("norm", norm);
    register_module("dropout", dropout);
  }
  at::Tensor forward(const at::Tensor& x) { return x + dropout(torch::relu(norm(convolution(x)))); }
  torch::nn::Conv2d convolution;
  SyncBatchNorm norm;
  SampleDropout dropout;
};
TORCH_MODULE(ConvolutionBlock);

struct ConvolutionsImpl : torch::nn::Module {
  ConvolutionsImpl() {
    input = register_module("input", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), Unit<ConvolutionBlock>(4)));
    }
    output = register_module("output", torch::nn::Linear(4, 5));
  }
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = torch::relu(input(images));
    for (auto& block : blocks) x = block(x);
    return output(x.mean({2, 3}));
  }
  torch::nn::Conv2d input{nullptr};
  std::vector<Unit<ConvolutionBlock>> blocks;
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(Convolutions);

struct Subject {
  Model model;
  std::shared_ptr<const Dataset> data;
};

inline std::vector<std::string> subject_names() { return {"gpt", "bert", "convolutions", "sharing"}; }

namespace detail {

template <class Holder>
Model as_model(const std::string& name, Holder module) {
  Model model;
  model.name = name;
  model.config = nlohmann::json::object();
  model.module = module.ptr();
  model.forward = [module](const at::Tensor& input) mutable { return module(input); };
  return model;
}

}  // namespace detail

// Returns the same weights and data in every call, on any thread.
inline Subject make_subject(const std::string& name) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(11);
  constexpr std::int64_t kSamples = 60;
  Subject subject;
  if (name == "gpt") {
    subject.model = make_model(
        "gpt",
        {{"vocabulary", 11}, {"context", 6}, {"layers", 3}, {"heads", 2}, {"width", 8}, {"dropout", 0.2}});
    const at::Tensor tokens = torch::randint(11, {kSamples, 7}, torch::kLong);
    subject.data =
        std::make_shared<Rows>(tokens.narrow(1, 0, 6).contiguous(), tokens.narrow(1, 1, 6).contiguous(), 11);
  } else if (name == "bert") {
    BertConfig config{.vocabulary = 12,
                      .positions = 6,
                      .layers = 2,
                      .heads = 2,
                      .width = 8,
                      .intermediate = 16,
                      .classes = 5};
    subject.model = make_model("bert", bert_model_config(config));
    const at::Tensor tokens = torch::randint(1, 12, {kSamples, 1, 6}, torch::kLong);
    const at::Tensor input = torch::cat({tokens, torch::zeros_like(tokens), torch::ones_like(tokens)}, 1);
    subject.data = std::make_shared<Rows>(input, torch::randint(5, {kSamples}, torch::kLong), 5);
  } else if (name == "convolutions") {
    subject.model = detail::as_model(name, Convolutions());
    subject.data = std::make_shared<Rows>(torch::randn({kSamples, 3, 5, 5}, torch::kDouble),
                                          torch::randint(5, {kSamples}, torch::kLong), 5);
  } else {
    subject.model = detail::as_model(name, Layers(/*width=*/7, /*has_spare=*/true));
    subject.data = std::make_shared<Rows>(torch::randn({kSamples, 6}, torch::kDouble),
                                          torch::randint(4, {kSamples}, torch::kLong), 4);
  }
  subject.model.module->to(torch::kDouble);
  return subject;
}

}  // namespace rondo::testing
