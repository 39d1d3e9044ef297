// Classification of images in MNIST's file format (IDX). The folder has train-images-idx3-ubyte and
// train-labels-idx1-ubyte, and optionally the two t10k files for evaluation.
//   rondo run -n 2 build/release/bin/examples/idx_classification FOLDER
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/data.h"
#include "rondo/models.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: idx_classification FOLDER\n";
    return 2;
  }
  try {
    const rondo::Context context = rondo::init();
    const auto strategy = rondo::all_strategies().make("ddp", context);
    // Without t10k files a tenth of the images is used for evaluation.
    const rondo::OpenedData data = rondo::open_data("idx", argv[1], {.validation_fraction = 0.1});
    const rondo::DatasetInfo& info = data.train->info();
    torch::manual_seed(1);
    const auto model =
        std::make_shared<rondo::ConvnetImpl>(rondo::ConvnetConfig{.channels = info.input_shape[0],
                                                                  .height = info.input_shape[1],
                                                                  .width = info.input_shape[2],
                                                                  .classes = info.classes});
    rondo::Trainer trainer(*strategy, model);
    trainer.compile(rondo::OptimizerOptions{.name = "adamw", .learning_rate = 2e-3}, rondo::cross_entropy,
                    {rondo::loss_metric(), rondo::accuracy_metric()});
    for (int epoch = 1; epoch <= 3; ++epoch) {
      trainer.fit(data.train, {.epochs = epoch, .batch_size = 32 / context.world_size()});
      // Evaluates over all ranks, each image exactly once, even if their number is not divisible by the
      // ranks.
      const auto figures = trainer.evaluate(*data.validation);
      if (context.rank() == 0)
        std::cout << "epoch " << epoch << " loss " << figures.at("loss") << " accuracy "
                  << figures.at("accuracy") << " of " << data.validation->size() << " images\n";
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "idx_classification: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
