// A custom perceptron, divided among the ranks by patterns of its layers' names:
//
//   rondo run -n 2 build/release/bin/examples/tensor
//
// The lines marked "rondo" are the changes to a plain libtorch loop for tensor parallelism. Every rank
// computes all samples with its part of the layers.
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/nn.h"

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(std::int64_t width) {
    up = register_module("up", rondo::ParallelLinear(width, 4 * width));      // rondo: in place of Linear
    down = register_module("down", rondo::ParallelLinear(4 * width, width));  // rondo
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(torch::tanh(up(x))); }
  rondo::ParallelLinear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Layer);

int main() {
  const rondo::Context context = rondo::init();  // rondo
  torch::manual_seed(1);                         // the same weights on all ranks
  torch::nn::Sequential model(Layer(64), Layer(64), torch::nn::Linear(64, 1));
  const rondo::ParallelRules rules{.rules = {{"*.up", rondo::ParallelStyle::column},   // rondo
                                             {"*.down", rondo::ParallelStyle::row}}};  // rondo
  rondo::parallelize(*model, rules, context.world());                                  // rondo

  std::int64_t values = 0;
  for (const at::Tensor& parameter : model->parameters()) values += parameter.numel();
  std::cout << "rank " << context.rank() << " parameters " << values << std::endl;
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < 100; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(1000 * step));  // the same samples on all ranks
    const at::Tensor input = at::randn({16, 64});
    const at::Tensor target = input.narrow(1, 0, 8).sum(1, true);
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(model->forward(input), target);
    loss.backward();
    optimizer.step();
    if (context.rank() == 0 && step % 20 == 19)
      std::cout << "step " << step + 1 << " loss " << loss.item<float>() << "\n";
  }
  return 0;
}
