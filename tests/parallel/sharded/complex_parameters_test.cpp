#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "rondo/strategy/summon_full_params.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/strategy_told.h"

namespace rondo::testing::complex_parameters_test {
namespace {

// A model with real and complex weights, like a layer in the frequency domain.
struct SpectralImpl : torch::nn::Module {
  SpectralImpl() {
    // Uses its own generator, because ranks are threads that share the default one.
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
    weight = register_parameter("weight", torch::randn({5, 3}, generator, at::kComplexDouble));
    scale = register_parameter("scale", torch::randn({5}, generator, at::kDouble));
  }
  // Returns a loss that is the mean over the samples.
  at::Tensor forward(const at::Tensor& x) {
    return ((at::matmul(x.to(at::kComplexDouble), weight.t()).abs() - scale).square()).sum(1).mean();
  }
  at::Tensor weight;
  at::Tensor scale;
};
TORCH_MODULE(Spectral);

constexpr std::int64_t kSamples = 4;

// Parameters after some steps, and the last norm before clipping.
struct Trained {
  std::vector<at::Tensor> parameters;
  double norm = 0;
};

Trained train(Context& context, const std::string& strategy_name) {
  const auto strategy = make_strategy(strategy_name, context, {});
  Spectral model;
  const auto prepared = strategy->prepare(model.ptr());
  torch::optim::SGD optimizer(distinct_parameters(prepared->module()), 0.1);
  const std::int64_t share = kSamples / context.world_size();
  Trained result;
  for (int step = 0; step < 4; ++step) {
    const at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(100 + static_cast<std::uint64_t>(step));
    const at::Tensor all = torch::randn({kSamples, 3}, generator, at::kDouble);
    optimizer.zero_grad();
    prepared->begin_step({.samples = share, .gradients_are_read = true});
    model(all.narrow(0, context.rank() * share, share)).backward();
    prepared->finish_backward();
    result.norm = prepared->clip_gradients(0.25);
    prepared->step(optimizer);
  }
  prepared->unshard();
  for (const at::Tensor& parameter : model->parameters())
    result.parameters.push_back(parameter.detach().clone());
  return result;
}

// One process clips with torch's own clip_grad_norm_.
TEST(ComplexParameters, AreClippedAsInOneProcess) {
  Trained alone;
  run_ranks(1, "native", [&](Context& context) { alone = train(context, "one_device"); });
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    run_ranks(2, "native", [&](Context& context) {
      const Trained shared = train(context, strategy);
      EXPECT_NEAR(shared.norm, alone.norm, 1e-9 * alone.norm) << strategy;
      ASSERT_EQ(shared.parameters.size(), alone.parameters.size());
      for (std::size_t i = 0; i < alone.parameters.size(); ++i)
        EXPECT_TRUE(at::allclose(shared.parameters[i], alone.parameters[i])) << strategy << " " << i;
    });
  }
}

}  // namespace
}  // namespace rondo::testing::complex_parameters_test
