// Trains a model whose layers are units under a strategy chosen by name, and prints its weights at the end:
//
//   rondo run -n 2 build/release/bin/examples/sharded zero3
//
// The lines marked "rondo" are the changes to a plain libtorch loop for sharding.
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/strategy.h"

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(std::int64_t width) {
    linear = register_module("linear", torch::nn::Linear(width, width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + torch::tanh(linear(x)); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Layer);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 4; ++i) {
      layers.emplace_back(
          register_module("layer" + std::to_string(i), rondo::Unit<Layer>(64)));  // rondo: a unit
    }
    head = register_module("head", torch::nn::Linear(64, 1));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return head(x);
  }
  std::vector<rondo::Unit<Layer>> layers;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "zero3";
  rondo::Context context = rondo::init();                             // rondo
  const auto strategy = rondo::all_strategies().make(name, context);  // rondo

  torch::manual_seed(1);
  Net model;
  const auto prepared = strategy->prepare(model.ptr());           // rondo
  torch::optim::AdamW optimizer(prepared->module().parameters(),  // rondo: this rank's parts
                                torch::optim::AdamWOptions(1e-2));
  torch::manual_seed(2 + static_cast<std::uint64_t>(context.rank()));  // each rank has samples of its own
  for (int step = 0; step < 100; ++step) {
    const at::Tensor input = at::randn({16, 64});
    const at::Tensor target = input.narrow(1, 0, 8).sum(1, true);
    optimizer.zero_grad();
    prepared->begin_step({.samples = 16, .gradients_are_read = false});  // rondo
    const at::Tensor loss = torch::mse_loss(model(input), target);
    loss.backward();
    prepared->finish_backward();  // rondo
    prepared->step(optimizer);    // rondo
    if (context.rank() == 0 && step % 20 == 19)
      std::cout << "step " << step + 1 << " loss " << loss.item<float>() << "\n";
  }

  const rondo::SummonFullParams full(*prepared);  // rondo: full parameters for a while
  std::cout << "rank " << context.rank() << " sum of weights " << std::hexfloat
            << model->layers[0]->linear->weight.sum().item<float>() << std::endl;
  context.shutdown();  // rondo: waits for the other ranks; may be left out
  return 0;
}
