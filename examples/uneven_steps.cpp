// Ranks with different numbers of batches, of different sizes, in one data-parallel training.
//   rondo run -n 2 build/release/bin/examples/uneven_steps
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <vector>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

int main() {
  const rondo::Context context = rondo::init();
  torch::manual_seed(1 + context.rank());
  torch::nn::Linear model(4, 1);
  rondo::DistributedDataParallel ddp(*model, context.world());
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  // Rank r has 40 + 20 r batches of 8 + 8 r samples.
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 40 + 20 * context.rank(); ++i)
    batches.push_back(torch::randn({8 + 8 * context.rank(), 4}));

  int steps = 0;
  rondo::with_join({&ddp}, [&] {
    for (const at::Tensor& input : batches) {
      optimizer.zero_grad();
      ddp.set_local_samples(input.size(0));
      const at::Tensor target = input.sum(1, /*keepdim=*/true);
      torch::mse_loss(ddp.forward(model, input), target).backward();
      optimizer.step();
      ++steps;
    }
  });

  const at::Tensor unseen = torch::ones({1, 4});
  std::cout << "rank " << context.rank() << " took " << steps << " steps, error "
            << std::abs(model->forward(unseen).item<float>() - 4) << std::endl;
  return 0;
}
