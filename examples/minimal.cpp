// A plain libtorch training loop made data-parallel. README.md marks the lines that were added.
//   rondo run -n 2 build/release/bin/examples/minimal
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

int main() {
  const rondo::Context context = rondo::init();  // joins the job; one process without a launcher
  torch::manual_seed(context.rank());            // each rank draws its own samples
  torch::nn::Linear model(4, 1);
  rondo::DistributedDataParallel ddp(*model, context.world());  // all ranks start from rank 0's weights
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  for (int step = 0; step <= 100; ++step) {
    const at::Tensor input = torch::randn({32, 4});
    const at::Tensor target = input.sum(1, /*keepdim=*/true);
    optimizer.zero_grad();
    const at::Tensor output = ddp.forward(model, input);
    const at::Tensor loss = torch::mse_loss(output, target);
    loss.backward();  // averages the gradients over all ranks
    optimizer.step();
    if (step % 20 == 0 && context.rank() == 0) {  // only rank 0 prints
      std::cout << "step " << step << " loss " << loss.item<float>() << "\n";
    }
  }
  return 0;
}
