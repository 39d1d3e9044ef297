// The task of the strategies' examples: find the largest of eight numbers.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "rondo/data.h"
#include "rondo/nn.h"

namespace small_task {

inline std::shared_ptr<const rondo::Dataset> data() {
  torch::manual_seed(1);
  const at::Tensor inputs = torch::randn({512, 8});
  return std::make_shared<rondo::TensorDataset>(rondo::Tensors{inputs}, rondo::Tensors{inputs.argmax(1)}, 8);
}

// Returns a new model at each call: strategies with several replicas call it for each replica.
inline rondo::Model model() {
  const auto module = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(8, 64), torch::nn::ReLU(),
                                                                  torch::nn::Linear(64, 8));
  return {.name = "small",
          .config = nlohmann::json::object(),
          .module = module,
          .forward = [raw = module.get()](const at::Tensor& input) { return raw->forward(input); }};
}

inline std::unique_ptr<torch::optim::Optimizer> optimizer(torch::nn::Module& module) {
  return std::make_unique<torch::optim::Adam>(module.parameters(), /*lr=*/1e-2);
}

}  // namespace small_task
