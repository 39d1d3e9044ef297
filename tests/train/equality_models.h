#pragma once

#include <torch/nn.h>
#include <torch/types.h>

#include <mutex>
#include <string>

#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/nn/unit.h"

// Small models of every kind in double precision, with dropout where the kind has it, and data for them: for
// tests that hold training on many ranks to training in one process.
namespace rondo::testing {

class Rows final : public Dataset {
 public:
  Rows(at::Tensor inputs, at::Tensor targets, std::int64_t classes)
      : inputs_(std::move(inputs)), targets_(std::move(targets)) {
    info_.kind = "rows";
    info_.source = "memory";
    info_.input_shape = inputs_.sizes().slice(1).vec();
    info_.classes = classes;
    info_.targets_per_sample = targets_.numel() / targets_.size(0);
  }
  std::int64_t size() const override { return inputs_.size(0); }
  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size());
    const at::Tensor rows =
        torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kLong);
    return {inputs_.index_select(0, rows), targets_.index_select(0, rows),
            static_cast<std::int64_t>(indices.size())};
  }
  const DatasetInfo& info() const override { return info_; }

 private:
  at::Tensor inputs_, targets_;
  DatasetInfo info_;
};

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

struct SharingBlockImpl : torch::nn::Module {
  SharingBlockImpl(std::int64_t width, const at::Tensor& shared_shift) : linear(width, width) {
    register_module("linear", linear);
    shift = register_parameter("shift", shared_shift.defined() ? shared_shift : torch::zeros({width}));
  }
  at::Tensor forward(const at::Tensor& x) { return x + torch::tanh(linear(x) + shift); }
  torch::nn::Linear linear;
  at::Tensor shift;
};
TORCH_MODULE(SharingBlock);

// Two units share a parameter, one unit runs twice, one and a layer outside are never used.
struct SharingImpl : torch::nn::Module {
  SharingImpl() {
    input = register_module("input", torch::nn::Linear(6, 7));
    for (int i = 0; i < 4; ++i) {
      const at::Tensor shared = i == 2 ? blocks[0]->shift : at::Tensor();
      blocks.push_back(register_module("block" + std::to_string(i), Unit<SharingBlock>(7, shared)));
    }
    unused = register_module("unused", torch::nn::Linear(3, 2));
    output = register_module("output", torch::nn::Linear(7, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    return output(blocks[1](blocks[2](blocks[1](blocks[0](input(x))))));
  }
  torch::nn::Linear input{nullptr}, output{nullptr}, unused{nullptr};
  std::vector<Unit<SharingBlock>> blocks;
};
TORCH_MODULE(Sharing);

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

// The same weights and data in every call, from any thread.
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
    subject.model = detail::as_model(name, Sharing());
    subject.data = std::make_shared<Rows>(torch::randn({kSamples, 6}, torch::kDouble),
                                          torch::randint(5, {kSamples}, torch::kLong), 5);
  }
  subject.model.module->to(torch::kDouble);
  return subject;
}

}  // namespace rondo::testing
