// ResNet-18 on a folder of images (JPEG or PNG, a folder for each class), with its batch norms over all
// ranks.
//   rondo run -n 2 build/release/bin/examples/resnet IMAGES [WIDTH]
// WIDTH 64, the default, is the published network; its first layers are those for small images.
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/data/open.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/nn/unit.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/trainer.h"

namespace {

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2).bias(false));
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(std::int64_t from, std::int64_t to, std::int64_t stride)
      : first(register_module("first", convolution(from, to, 3, stride))),
        first_norm(register_module("first_norm", rondo::SyncBatchNorm(to))),
        second(register_module("second", convolution(to, to, 3, 1))),
        second_norm(register_module("second_norm", rondo::SyncBatchNorm(to))) {
    if (from == to && stride == 1) return;
    shortcut = register_module(
        "shortcut", torch::nn::Sequential(convolution(from, to, 1, stride), rondo::SyncBatchNorm(to)));
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor inner = second_norm(second(torch::relu(first_norm(first(input)))));
    return torch::relu(inner + (shortcut ? shortcut->forward(input) : input));
  }
  torch::nn::Conv2d first;
  rondo::SyncBatchNorm first_norm;
  torch::nn::Conv2d second;
  rondo::SyncBatchNorm second_norm;
  torch::nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

struct ResNet18Impl : torch::nn::Module {
  ResNet18Impl(std::int64_t classes, std::int64_t width)
      : stem(register_module("stem", convolution(3, width, 3, 1))),
        norm(register_module("norm", rondo::SyncBatchNorm(width))),
        head(register_module("head", torch::nn::Linear(8 * width, classes))) {
    std::int64_t from = width;
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t to = width << stage;
      for (int i = 0; i < 2; ++i) {
        blocks.push_back(register_module("block" + std::to_string(2 * stage + i),
                                         rondo::Unit<Block>(from, to, stage > 0 && i == 0 ? 2 : 1)));
        from = to;
      }
    }
  }
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor value = torch::relu(norm(stem(images)));
    for (auto& block : blocks) value = block(value);
    return head(value.mean({2, 3}));
  }
  torch::nn::Conv2d stem;
  rondo::SyncBatchNorm norm;
  std::vector<rondo::Unit<Block>> blocks;
  torch::nn::Linear head;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: resnet IMAGES [WIDTH]\n";
    return 2;
  }
  try {
    const rondo::Context context = rondo::init();
    const auto strategy = rondo::all_strategies().make("ddp", context);
    const rondo::OpenedData data = rondo::open_data(
        "image_folder", argv[1], {.validation_fraction = 0.25, .images = {.size = 16, .crop_scale = 0.5}});
    torch::manual_seed(1);
    const auto model =
        std::make_shared<ResNet18Impl>(data.train->info().classes, argc == 3 ? std::stoi(argv[2]) : 64);
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
}
