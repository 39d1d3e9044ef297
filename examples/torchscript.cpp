// Trains a TorchScript module written by Python (torch.jit.script(model).save("in.pt")) and saves it for
// Python to load.
//   rondo run -n 2 build/release/bin/examples/torchscript in.pt out.pt
#include <torch/script.h>
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: torchscript IN.pt OUT.pt  (a module that maps [samples, 4] to [samples, 1])\n";
    return 2;
  }
  const rondo::Context context = rondo::init();
  torch::jit::Module model = torch::jit::load(argv[1]);
  model.train();
  rondo::DistributedDataParallel ddp(model, context.world());
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : model.parameters()) parameters.push_back(parameter);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.01));
  torch::manual_seed(context.rank());
  for (int step = 0; step <= 100; ++step) {
    const at::Tensor input = torch::randn({32, 4});
    const at::Tensor target = input.abs().sum(1, /*keepdim=*/true);
    optimizer.zero_grad();
    ddp.before_forward();  // ddp.forward() calls it for a C++ module
    const at::Tensor loss = torch::mse_loss(model.forward({input}).toTensor(), target);
    loss.backward();
    optimizer.step();
    if (step % 25 == 0 && context.rank() == 0)
      std::cout << "step " << step << " loss " << loss.item<float>() << "\n";
  }
  if (context.rank() == 0) model.save(argv[2]);
  return 0;
}
