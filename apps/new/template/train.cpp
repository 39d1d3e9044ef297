// @PROJECT@: trains its own model on as many processes as it is started with.
//
//   make train                                      two processes on this machine
//   rondo run -n 2 build/train --strategy zero3     another strategy: rondo train --help lists their names
#include <rondo/rondo.h>
#include <torch/torch.h>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include "net.h"

// Returns the training data; the task is to find the largest of eight numbers. Replace it with your own
// tensors or a rondo::Dataset.
std::shared_ptr<rondo::Dataset> samples(int64_t count, uint64_t seed) {
  torch::manual_seed(seed);
  const torch::Tensor inputs = torch::randn({count, 8});
  return std::make_shared<rondo::TensorDataset>(rondo::Tensors{inputs}, rondo::Tensors{inputs.argmax(1)}, 8);
}

void train(const std::string& strategy_name) {
  const rondo::Context context = rondo::init();  // joins the job; a job of one without a launcher
  const auto strategy = rondo::all_strategies().make(strategy_name, context);
  torch::manual_seed(1);
  rondo::Trainer trainer(*strategy, Net(8, 8).ptr());
  trainer.compile([](torch::nn::Module& module) {
    return rondo::make_optimizer({.name = "adamw", .learning_rate = 3e-3}, module);
  });
  const auto result = trainer.fit(
      samples(4096, 1),
      {.epochs = 4,
       .batch_size = 32,  // per process
       .validation = samples(1024, 2),
       .callbacks = {std::make_shared<rondo::ProgressDisplay>(rondo::ProgressDisplay::Options())}});
  trainer.save("checkpoints", /*keep=*/2);
  if (context.rank() == 0)
    std::cout << "validation loss " << result.validation.at("loss") << ", saved in checkpoints/\n";
}

int main(int count, char** words) {
  const bool names_strategy = count == 3 && std::string(words[1]) == "--strategy";
  if (count > 1 && !names_strategy) {
    std::cerr << "usage: " << words[0] << " [--strategy NAME]\n";
    return 2;
  }
  try {
    train(names_strategy ? words[2] : "ddp");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
