// An exponential moving average of the weights, and an evaluation on rank 0 alone, in a loop of one's own
// under the strategy of a name.
//   rondo run -n 2 build/release/bin/examples/weight_average zero3
#include <torch/torch.h>

#include <iostream>
#include <string>
#include <vector>

#include "rondo/collectives.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/strategy.h"

namespace {

torch::nn::Sequential make_network() {
  return torch::nn::Sequential(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
}

at::Tensor loss_of(torch::nn::Sequential& network, const at::Tensor& input) {
  return torch::mse_loss(network->forward(input), input.sum(1, /*keepdim=*/true));
}

// Moves the parameters of `average` towards those of `model`; decay 0 copies them.
void update_average(const torch::nn::Sequential& average, const torch::nn::Sequential& model, double decay) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> target = model->parameters();
  std::vector<at::Tensor> averaged = average->parameters();
  for (std::size_t i = 0; i < averaged.size(); ++i) averaged[i].lerp_(target[i], 1 - decay);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "zero3";
  rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make(name, context);
  torch::manual_seed(1);
  torch::nn::Sequential model = make_network();
  torch::nn::Sequential average = make_network();  // a plain copy, which no strategy shards
  rondo::wrap_units(*model, rondo::wrap_all());
  const auto prepared = strategy->prepare(model.ptr());
  torch::optim::AdamW optimizer(prepared->module().parameters(), torch::optim::AdamWOptions(1e-2));
  const at::Tensor unseen = torch::randn({256, 8});
  torch::manual_seed(2 + context.rank());  // each rank draws its own samples

  constexpr int kSamples = 16, kSteps = 200, kEvery = 5;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    prepared->begin_step({.samples = kSamples});
    loss_of(model, torch::randn({kSamples, 8})).backward();
    prepared->finish_backward();
    prepared->step(optimizer);

    if (step % kEvery == 0) {
      const rondo::SummonFullParams full(*prepared);  // on all ranks
      if (context.rank() == 0) update_average(average, model, step == 0 ? 0.0 : 0.8);
    }
  }

  const rondo::SummonFullParams full(*prepared);  // on all ranks
  if (context.rank() == 0) {                      // on one rank
    const at::NoGradGuard no_grad;
    std::cout << "loss of the weights " << loss_of(model, unseen).item<float>() << "\nloss of the average "
              << loss_of(average, unseen).item<float>() << "\n";
  }
  context.shutdown();  // waits for rank 0, which reads memory of all ranks
  return 0;
}
