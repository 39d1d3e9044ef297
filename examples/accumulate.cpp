// Gradient accumulation in a loop of one's own: gradients travel once for several batches.
//   rondo run -n 2 build/release/bin/examples/accumulate
#include <torch/torch.h>

#include <iostream>
#include <optional>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

int main() {
  const rondo::Context context = rondo::init();
  torch::manual_seed(context.rank());  // every rank has data of its own
  torch::nn::Linear model(4, 1);
  rondo::DistributedDataParallel ddp(*model, context.world());
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  constexpr int kBatches = 4;  // of one step
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < kBatches; ++batch) {
      std::optional<rondo::NoSync> local;
      if (batch + 1 < kBatches) local.emplace(ddp.no_sync());
      const at::Tensor input = torch::randn({32, 4});
      const at::Tensor target = input.sum(1, /*keepdim=*/true);
      const at::Tensor loss = torch::mse_loss(ddp.forward(model, input), target) / kBatches;
      loss.backward();
      last = kBatches * loss.item<double>();
    }
    optimizer.step();
  }
  if (context.rank() == 0) std::cout << "loss " << last << "\n";
  return 0;
}
