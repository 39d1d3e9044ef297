// ResNet-18 or ResNet-50 on a folder of images (JPEG or PNG, one folder per class), with batch norms
// synchronized over all ranks.
//   rondo run -n 2 build/release/bin/examples/resnet IMAGES [WIDTH [18|50]]
// WIDTH 64, the default, is the published network, except for first layers for small images.
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "rondo/collectives.h"
#include "rondo/data.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

namespace {

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2).bias(false));
}

// The number of blocks in each of the four stages, and their kind.
struct Depth {
  std::array<int, 4> blocks;
  bool narrow;  // bottleneck blocks (1x1, 3x3, 1x1 with a quarter of the channels inside) instead of two 3x3
};

Depth depth(const std::string& layers) {
  if (layers == "18") return {.blocks = {2, 2, 2, 2}, .narrow = false};
  if (layers == "50") return {.blocks = {3, 4, 6, 3}, .narrow = true};
  throw std::invalid_argument("'" + layers + "' layers, expected 18 or 50");
}

// Returns a block's residual branch.
torch::nn::Sequential addition(std::int64_t from, std::int64_t to, std::int64_t stride, bool narrow) {
  using torch::nn::ReLU;
  if (!narrow)
    return torch::nn::Sequential(convolution(from, to, 3, stride), rondo::SyncBatchNorm(to), ReLU(),
                                 convolution(to, to, 3, 1), rondo::SyncBatchNorm(to));
  const std::int64_t inner = to / 4;
  return torch::nn::Sequential(convolution(from, inner, 1, 1), rondo::SyncBatchNorm(inner), ReLU(),
                               convolution(inner, inner, 3, stride), rondo::SyncBatchNorm(inner), ReLU(),
                               convolution(inner, to, 1, 1), rondo::SyncBatchNorm(to));
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t from, std::int64_t to, std::int64_t stride, bool narrow)
      : added(register_module("added", addition(from, to, stride, narrow))) {
    // A block starts as its shortcut alone, so that a deep net does not diverge in its first steps (Goyal et
    // al., "Accurate, Large Minibatch SGD", 2017).
    torch::nn::init::zeros_(added->ptr(added->size() - 1)->as<rondo::SyncBatchNorm>()->weight);
    if (from == to && stride == 1) return;
    shortcut = register_module(
        "shortcut", torch::nn::Sequential(convolution(from, to, 1, stride), rondo::SyncBatchNorm(to)));
  }
  at::Tensor forward(const at::Tensor& input) {
    return torch::relu(added->forward(input) + (shortcut ? shortcut->forward(input) : input));
  }
  torch::nn::Sequential added, shortcut{nullptr};
};
TORCH_MODULE(Block);

struct ResNetImpl : torch::nn::Module {
  ResNetImpl(const Depth& depth, std::int64_t classes, std::int64_t width)
      : stem(register_module("stem", convolution(3, width, 3, 1))),
        norm(register_module("norm", rondo::SyncBatchNorm(width))) {
    std::int64_t from = width;
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t to = (width << stage) * (depth.narrow ? 4 : 1);
      for (int i = 0; i < depth.blocks[static_cast<std::size_t>(stage)]; ++i) {
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks.emplace_back(register_module("block" + std::to_string(blocks.size()),
                                            rondo::Unit<Block>(from, to, stride, depth.narrow)));
        from = to;
      }
    }
    head = register_module("head", torch::nn::Linear(from, classes));
  }
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor value = torch::relu(norm(stem(images)));
    for (auto& block : blocks) value = block(value);
    return head(value.mean({2, 3}));
  }
  torch::nn::Conv2d stem;
  rondo::SyncBatchNorm norm;
  std::vector<rondo::Unit<Block>> blocks;
  torch::nn::Linear head{nullptr};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: resnet IMAGES [WIDTH [18|50]]\n";
    return 2;
  }
  try {
    const rondo::Context context = rondo::init();
    const auto strategy = rondo::all_strategies().make("ddp", context);
    const rondo::OpenedData data = rondo::open_data(
        "image_folder", argv[1],
        {.validation_fraction = 0.25, .of_kind = rondo::ImageOptions{.size = 16, .crop_scale = 0.5}});
    torch::manual_seed(1);
    const auto model = std::make_shared<ResNetImpl>(
        depth(argc > 3 ? argv[3] : "18"), data.train->info().classes, argc > 2 ? std::stoi(argv[2]) : 64);
    rondo::synchronise_batch_norms(*model, context.world());
    rondo::Trainer trainer(*strategy, model);
    trainer.compile(rondo::OptimizerOptions{.name = "sgd",
                                            .learning_rate = 0.05,
                                            .weight_decay = 5e-4,
                                            .momentum = 0.9,
                                            .decayed = rondo::Decayed::matrices},
                    rondo::cross_entropy, {rondo::loss_metric(), rondo::accuracy_metric()});
    for (int epoch = 1; epoch <= 10; ++epoch) {
      trainer.fit(data.train, {.epochs = epoch, .batch_size = 16 / context.world_size()});
      const auto figures = trainer.evaluate(*data.validation);
      if (context.rank() == 0)
        std::cout << "epoch " << epoch << " loss " << figures.at("loss") << " accuracy "
                  << figures.at("accuracy") << "\n";
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "resnet: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
