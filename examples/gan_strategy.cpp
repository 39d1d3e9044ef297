// Two models under a strategy chosen by name: the GAN of gan.cpp, with layers, gradients and optimizers
// divided among the ranks.
//   rondo run -n 2 build/release/bin/examples/gan_strategy zero3
#include <torch/torch.h>

#include <iostream>
#include <string>

#include "rondo/collectives.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"

namespace {

torch::nn::Sequential make_network(int inputs) {
  torch::nn::Sequential network(torch::nn::Linear(inputs, 32), torch::nn::LeakyReLU(),
                                torch::nn::Linear(32, 1));
  rondo::wrap_units(*network, rondo::wrap_all());
  return network;
}

// Returns the loss of `logits` for samples that are real (or are not).
at::Tensor verdict_loss(const at::Tensor& logits, bool real) {
  return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, real ? 1.0 : 0.0));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "zero3";
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make(name, context);
  torch::manual_seed(1);
  torch::nn::Sequential generator = make_network(4), discriminator = make_network(1);
  const auto prepared_generator = strategy->prepare(generator.ptr());
  const auto prepared_discriminator = strategy->prepare(discriminator.ptr());
  const auto options = torch::optim::AdamOptions(5e-3).betas({0.5, 0.9});
  torch::optim::Adam generator_optimizer(prepared_generator->module().parameters(), options);
  torch::optim::Adam discriminator_optimizer(prepared_discriminator->module().parameters(), options);
  torch::manual_seed(context.rank() + 2);

  constexpr int kSamples = 64, kSteps = 600;
  for (int step = 1; step <= kSteps; ++step) {
    // The generator provides samples, without gradients.
    prepared_generator->begin_step({.samples = kSamples, .discard_gradients = true});
    const at::Tensor fake = generator->forward(torch::randn({kSamples, 4})).detach();
    prepared_generator->finish_backward();

    // Trains the discriminator.
    const at::Tensor real = torch::randn({kSamples, 1}) + 3.0;
    discriminator_optimizer.zero_grad();
    prepared_discriminator->begin_step({.samples = kSamples});
    const at::Tensor verdicts = discriminator->forward(torch::cat({real, fake}));
    (verdict_loss(verdicts.slice(0, 0, kSamples), true) + verdict_loss(verdicts.slice(0, kSamples), false))
        .backward();
    prepared_discriminator->finish_backward();
    prepared_discriminator->step(discriminator_optimizer);

    // Trains the generator through the discriminator, whose gradients of this pass are discarded.
    generator_optimizer.zero_grad();
    prepared_generator->begin_step({.samples = kSamples});
    prepared_discriminator->begin_step({.samples = kSamples, .discard_gradients = true});
    const at::Tensor sample = generator->forward(torch::randn({kSamples, 4}));
    verdict_loss(discriminator->forward(sample), true).backward();
    prepared_discriminator->finish_backward();
    prepared_generator->finish_backward();
    prepared_generator->step(generator_optimizer);

    if (step % 200 == 0 && context.rank() == 0)
      std::cout << "step " << step << " mean " << sample.mean().item<float>() << "\n";
  }
  return 0;
}
