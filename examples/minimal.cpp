// A plain libtorch training loop made data-parallel. The lines marked `rondo` are all that was added.
//   rondo run -n 2 build/release/bin/examples/minimal
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

int main() {
  const rondo::Context context = rondo::init();  // rondo: finds the other ranks; none without a launcher
  torch::manual_seed(context.rank());            // rondo: every rank has data of its own
  torch::nn::Linear model(4, 1);
  rondo::DistributedDataParallel ddp(*model, context.world());  // rondo: the weights of rank 0 everywhere
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  for (int step = 0; step <= 100; ++step) {
    const at::Tensor input = torch::randn({32, 4});
    const at::Tensor target = input.sum(1, /*keepdim=*/true);
    optimizer.zero_grad();
    const at::Tensor output = ddp.forward(model, input);  // rondo: instead of model->forward(input)
    const at::Tensor loss = torch::mse_loss(output, target);
    loss.backward();  // rondo: leaves the average over all ranks in the gradients
    optimizer.step();
    if (step % 20 == 0 && context.rank() == 0) {  // rondo: one rank speaks for all
      std::cout << "step " << step << " loss " << loss.item<float>() << "\n";
    }
  }
  return 0;
}
