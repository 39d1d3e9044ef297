// A user's model module: layers that are units, one of them in a Sequential that rules can wrap, and dropout
// by sample. The second block of one rank may burn processor time to make the rank a straggler.
#include <torch/torch.h>

#include <rondo/models/model_module.h>
#include <rondo/nn/sample_dropout.h>
#include <rondo/nn/unit.h>
#include <cstdlib>
#include <ctime>
#include "rondo/base/error.h"

namespace {

double thread_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width) : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    for (const double end = thread_seconds() + burnt_seconds; thread_seconds() < end;) {
    }
    return x + torch::relu(linear(x));
  }
  torch::nn::Linear linear;
  double burnt_seconds = 0;  // processor time in seconds for each forward pass
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl(int64_t inputs, int64_t classes, int64_t width) : inputs_(inputs) {
    input = register_module("input", torch::nn::Linear(inputs, width));
    for (int i = 0; i < 2; ++i) {
      blocks.emplace_back(width);
      register_module("block" + std::to_string(i), blocks.back());
    }
    dropout = register_module("dropout", rondo::SampleDropout(0.1));
    output = register_module("output", torch::nn::Sequential(torch::nn::Linear(width, classes)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor value = input(x.reshape({x.size(0), inputs_}));
    for (auto& block : blocks) value = block(value);
    return output->forward(dropout(value));
  }
  int64_t inputs_;
  torch::nn::Linear input{nullptr};
  std::vector<rondo::Unit<Block>> blocks;
  rondo::SampleDropout dropout{nullptr};
  torch::nn::Sequential output{nullptr};
};

}  // namespace

extern "C" void make_model(const rondo::ModelRequest& request, rondo::Model& model) {
  int64_t inputs = 1;
  for (const auto& size : request.config.at("input_shape")) inputs *= size.get<int64_t>();
  const int64_t width = request.config.value("width", 16);
  if (width < 1)
    throw rondo::UsageError("own_model: width is " + std::to_string(width) + ", expected at least 1");
  auto net = std::make_shared<NetImpl>(inputs, request.config.at("classes").get<int64_t>(), width);
  const char* const rank = std::getenv("RANK");
  if (rank != nullptr && request.config.value("slow_rank", -1) == std::atoi(rank))
    net->blocks[1]->burnt_seconds = request.config.value("burnt_ms", 0.0) / 1e3;
  model = rondo::as_model(net);
}

extern "C" void make_nothing(const rondo::ModelRequest&, rondo::Model&) {}
