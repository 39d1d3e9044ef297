// A layer of experts spread over the ranks: tokens are sent to the experts that the router chose for them.
//   rondo run -n 2 build/release/bin/examples/experts
#include <iostream>

#include "examples/small_task.h"
#include "rondo/collectives.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

namespace {

struct Classifier : torch::nn::Module {
  Classifier() {
    register_module("input", input);
    register_module("experts", experts);
    register_module("output", output);
  }
  // Each sample is one token here.
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = torch::relu(input(x));
    return output(hidden + experts(hidden));
  }
  torch::nn::Linear input{8, 32};
  rondo::MixtureOfExperts experts{rondo::ExpertsConfig{
      .width = 32, .inner = 64, .experts = 4, .per_token = 2, .capacity_factor = 2, .balance_loss = 0.01}};
  torch::nn::Linear output{32, 8};
};

}  // namespace

int main() {
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("expert", context);  // one process has all experts
  torch::manual_seed(2);
  const auto model = std::make_shared<Classifier>();
  rondo::Trainer trainer(*strategy, model);
  trainer.compile(small_task::optimizer);
  const auto data = small_task::data();
  trainer.fit(data, {.epochs = 5, .batch_size = 32 / context.world_size()});
  const std::int64_t here = model->experts->local_experts();
  const double loss = trainer.evaluate(*data).at("loss");
  if (context.rank() == 0) std::cout << "experts " << here << " of 4 here, evaluated loss " << loss << "\n";
  return 0;
}
