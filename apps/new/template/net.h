#pragma once

#include <rondo/nn.h>
#include <torch/torch.h>
#include <string>
#include <vector>

// The trained model. A layer that is a rondo::Unit can be sharded separately.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width) : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + torch::relu(linear(x)); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl(int64_t inputs, int64_t classes) {
    input = register_module("input", torch::nn::Linear(inputs, 64));
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), rondo::Unit<Block>(64)));
    output = register_module("output", torch::nn::Linear(64, classes));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = input(x);
    for (auto& block : blocks) x = block(x);
    return output(x);
  }
  torch::nn::Linear input{nullptr}, output{nullptr};
  std::vector<rondo::Unit<Block>> blocks;
};
TORCH_MODULE(Net);
