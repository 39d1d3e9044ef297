// A GAN: two models and two optimizers in one loop. The generator learns to sample from a normal distribution
// of mean 3.
//   rondo run -n 2 build/release/bin/examples/gan
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

namespace {

torch::nn::Sequential make_network(int inputs) {
  return torch::nn::Sequential(torch::nn::Linear(inputs, 32), torch::nn::LeakyReLU(),
                               torch::nn::Linear(32, 1));
}

// Returns the loss of `logits` for samples that are real (or are not).
at::Tensor verdict_loss(const at::Tensor& logits, bool real) {
  return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, real ? 1.0 : 0.0));
}

}  // namespace

int main() {
  const rondo::Context context = rondo::init();
  torch::manual_seed(1);
  torch::nn::Sequential generator = make_network(4), discriminator = make_network(1);
  rondo::DistributedDataParallel generator_ddp(*generator, context.world());
  rondo::DistributedDataParallel discriminator_ddp(*discriminator, context.world());
  const auto options = torch::optim::AdamOptions(5e-3).betas({0.5, 0.9});
  torch::optim::Adam generator_optimizer(generator->parameters(), options);
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(), options);
  torch::manual_seed(context.rank() + 2);

  constexpr int kSamples = 64, kSteps = 600;
  for (int step = 1; step <= kSteps; ++step) {
    // Trains the discriminator; the generator only provides samples.
    const at::Tensor real = torch::randn({kSamples, 1}) + 3.0;
    const at::Tensor fake = generator->forward(torch::randn({kSamples, 4})).detach();
    discriminator_optimizer.zero_grad();
    const at::Tensor verdicts = discriminator_ddp.forward(discriminator, torch::cat({real, fake}));
    (verdict_loss(verdicts.slice(0, 0, kSamples), true) + verdict_loss(verdicts.slice(0, kSamples), false))
        .backward();
    discriminator_optimizer.step();

    // Trains the generator through the discriminator. The discriminator's gradients of this pass are not
    // needed, so they stay local.
    const rondo::NoSync discriminator_stays_local = discriminator_ddp.no_sync();
    generator_optimizer.zero_grad();
    const at::Tensor sample = generator_ddp.forward(generator, torch::randn({kSamples, 4}));
    verdict_loss(discriminator->forward(sample), true).backward();
    generator_optimizer.step();

    if (step % 200 == 0 && context.rank() == 0) {
      std::cout << "step " << step << " mean " << sample.mean().item<float>() << "\n";
    }
  }
  return 0;
}
