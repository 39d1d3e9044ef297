// A model sharded over the ranks (FSDP) in a loop of one's own:
//
//   rondo run -n 2 build/release/bin/examples/fully_shard
//
// The lines marked "rondo" are all that a plain libtorch loop needs.
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"

int main() {
  const rondo::Context context = rondo::init();  // rondo
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(64, 256), torch::nn::Tanh(), torch::nn::Linear(256, 1));
  rondo::wrap_units(*model, rondo::wrap_all());     // rondo: each layer is gathered by itself
  auto fsdp = rondo::fully_shard(model, context);   // rondo: before the optimizer is made
  torch::optim::AdamW optimizer(fsdp.parameters(),  // rondo: this rank's shards
                                torch::optim::AdamWOptions(1e-2));
  torch::manual_seed(2 + context.rank());  // each rank has samples of its own
  for (int step = 0; step < 100; ++step) {
    const at::Tensor input = torch::randn({16, 64});
    const at::Tensor target = input.narrow(1, 0, 8).sum(1, /*keepdim=*/true);
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(fsdp.forward(model, input), target);  // rondo
    loss.backward();
    fsdp.clip_grad_norm_(10.0);  // rondo: the norm over all ranks
    fsdp.step(optimizer);        // rondo
    if (context.rank() == 0 && step % 20 == 19)
      std::cout << "step " << step + 1 << " loss " << loss.item<float>() << "\n";
  }
  std::int64_t elements = 0;
  for (const at::Tensor& shard : fsdp.parameters()) elements += shard.numel();
  const at::Tensor weight = fsdp.state_dict().front().tensor;  // rondo: full, on every rank
  std::cout << "rank " << context.rank() << " has " << elements << " elements, sum of weights "
            << std::hexfloat << weight.sum().item<float>() << std::defaultfloat << std::endl;
  return 0;
}
