#include "rondo/strategy/training.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/script.h>
#include <torch/types.h>

#include <atomic>
#include <mutex>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/data/dataset.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"

namespace rondo::training_test {
namespace {

using testing::run_ranks;

// A model with two inputs of different dtypes and two outputs: the sum of an embedded number and a projected
// vector, and a head.
struct MixerImpl : torch::nn::Module {
  MixerImpl()
      : embedding(register_module("embedding", torch::nn::Embedding(7, 4))),
        linear(register_module("linear", torch::nn::Linear(3, 4))),
        head(register_module("head", torch::nn::Linear(4, 1))) {}
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& number, const at::Tensor& vector) {
    const at::Tensor hidden = torch::tanh(embedding(number) + linear(vector));
    return {hidden, head(hidden).squeeze(-1)};
  }
  torch::nn::Embedding embedding;
  torch::nn::Linear linear;
  torch::nn::Linear head;
};

std::shared_ptr<MixerImpl> mixer() {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  auto module = std::make_shared<MixerImpl>();
  module->to(torch::kDouble);
  return module;
}

std::shared_ptr<TensorDataset> mixed_data(std::int64_t samples) {
  const auto generator = at::detail::createCPUGenerator(5);
  return std::make_shared<TensorDataset>(Tensors{torch::randint(7, {samples}, generator, torch::kLong),
                                                 torch::randn({samples, 3}, generator, torch::kDouble)},
                                         Tensors{torch::randint(4, {samples}, generator, torch::kLong),
                                                 torch::randn({samples}, generator, torch::kDouble)});
}

at::Tensor both_losses(const Tensors& outputs, const Tensors& targets) {
  return torch::cross_entropy_loss(outputs[0], targets[0]) + torch::mse_loss(outputs[1], targets[1]);
}

OptimizerFactory sgd() {
  return
      [](torch::nn::Module& module) { return make_optimizer({.name = "sgd", .learning_rate = 0.1}, module); };
}

std::vector<double> losses_of(Strategy& strategy, const std::string& trained) {
  struct Losses final : Callback {
    std::string name() const override { return "losses"; }
    void on_step_end(Trainer&, const StepRecord& record) override { values.push_back(record.loss); }
    std::vector<double> values;
  };
  const auto losses = std::make_shared<Losses>();
  const auto module = mixer();
  Model model = as_model(module);
  if (trained == "lambda") {
    model.forward = [module](const Tensors& inputs) {
      const auto [first, second] = module->forward(inputs[0], inputs[1]);
      return Tensors{first, second};
    };
  }
  Trainer trainer = trained == "factory" ? Trainer(strategy, ModelFactory([] { return as_model(mixer()); }))
                                         : Trainer(strategy, std::move(model));
  trainer.compile(sgd(), both_losses);
  const int ranks = strategy.context().world_size();
  // 26 samples: the last batch is smaller, and on 4 ranks one has none.
  trainer.fit(mixed_data(26), {.epochs = 2, .batch_size = 12 / ranks, .callbacks = {losses}});
  const Tensors outputs = trainer.predict_all(*mixed_data(26), {.batch_size = 5});
  EXPECT_EQ(outputs.size(), 2);
  EXPECT_EQ(outputs[0].sizes(), (at::IntArrayRef{26, 4}));
  EXPECT_EQ(outputs[1].sizes(), (at::IntArrayRef{26}));
  losses->values.push_back(trainer.evaluate(*mixed_data(26)).at("loss"));
  return losses->values;
}

TEST(Training, OfSeveralInputsAndTargetsEqualsOneProcess) {
  std::vector<double> expected;
  run_ranks(1, "native", [&](Context& context) {
    expected = losses_of(*all_strategies().make("one_device", context), "module");
    EXPECT_EQ(expected, losses_of(*all_strategies().make("one_device", context), "lambda"));
    EXPECT_EQ(expected, losses_of(*all_strategies().make("one_device", context), "factory"));
  });
  ASSERT_EQ(expected.size(), 7);
  EXPECT_LT(expected.back(), expected.front());
  for (const int ranks : {2, 4}) {
    for (const char* name : {"ddp", "zero1", "zero2", "zero3"}) {
      run_ranks(ranks, "native", [&](Context& context) {
        const std::vector<double> own = losses_of(*all_strategies().make(name, context), "module");
        ASSERT_EQ(own.size(), expected.size());
        for (std::size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], expected[i], 1e-9) << name << ranks;
      });
    }
  }
}

TEST(Training, OfATorchScriptModuleEqualsTheModules) {
  const auto weight = torch::full({1, 3}, 0.25, torch::kDouble);
  const auto data = std::make_shared<TensorDataset>(
      Tensors{torch::randn({24, 3}, at::detail::createCPUGenerator(1), torch::kDouble)},
      Tensors{torch::randn({24}, at::detail::createCPUGenerator(2), torch::kDouble)});
  std::atomic<int> equal{0};
  run_ranks(2, "native", [&](Context& context) {
    const auto train = [&](auto model) {
      auto strategy = all_strategies().make("ddp", context);
      Trainer trainer(*strategy, model);
      trainer.compile(sgd(), make_loss("mse"));
      trainer.fit(data, {.epochs = 2, .batch_size = 4});
      return trainer.model().module->parameters().front().detach().clone();
    };
    auto linear = std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(3, 1).bias(false));
    linear->to(torch::kDouble);
    {
      const torch::NoGradGuard no_grad;
      linear->weight.copy_(weight);
    }
    Model plain = as_model(linear);
    plain.forward = [linear](const at::Tensor& x) { return linear->forward(x).squeeze(-1); };
    torch::jit::Module script("Script");
    script.register_parameter("weight", weight.clone().requires_grad_(), /*is_buffer=*/false);
    script.define("def forward(self, x):\n  return torch.matmul(x, self.weight.t()).squeeze(-1)\n");
    equal += at::allclose(train(script), train(plain), 1e-12, 1e-12);
  });
  EXPECT_EQ(equal, 2);
}

// The message with losses, samples and requests to stop also weights gradients.
TEST(Training, TotalsTravelWithTheAnnouncement) {
  for (const char* name : {"ddp", "zero2"}) {
    run_ranks(3, "native", [&](Context& context) {
      auto strategy = all_strategies().make(name, context);
      Recipe recipe{.model = [] { return as_model(mixer()); }};
      recipe.loss = both_losses;
      recipe.optimizer = sgd();
      const auto training = strategy->prepare(recipe);
      const auto data = mixed_data(26);
      std::vector<std::int64_t> own(static_cast<std::size_t>(context.rank()));  // 0, 1 and 2 samples
      std::iota(own.begin(), own.end(), 0);
      const std::vector<Batch> window = {data->get(own)};
      StepSettings settings;
      settings.stop_requested = [&] { return context.rank() == 1; };
      const StepResult first = training->train_step(window, settings);
      EXPECT_EQ(first.totals.samples, 3) << name;
      EXPECT_EQ(first.totals.predictions, 3) << name;
      EXPECT_TRUE(first.totals.stop) << name;
      settings.stop_requested = {};
      EXPECT_FALSE(training->train_step(window, settings).totals.stop) << name;
    });
  }
}

TEST(Training, RefusesWhatDoesNotFit) {
  run_ranks(1, "native", [&](Context& context) {
    auto strategy = all_strategies().make("one_device", context);
    const auto message_of = [&](auto forward, LossFunction loss) -> std::string {
      const auto module = mixer();
      Model model = as_model(module);
      model.forward = forward;
      Trainer trainer(*strategy, std::move(model), sgd(), std::move(loss));
      try {
        trainer.fit(mixed_data(8), {.steps = 1, .batch_size = 4});
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    for (const ModelFactory& factory : {ModelFactory(), ModelFactory([] { return Model(); })})
      EXPECT_THROW(strategy->prepare({.model = factory}), UsageError);
    const auto two = [](const at::Tensor& a, const at::Tensor& b) { return b.sum(1) + a; };
    EXPECT_NE(message_of([](const at::Tensor& x) { return x; }, both_losses).find("takes 1"),
              std::string::npos);
    EXPECT_NE(message_of([](const Tensors&) { return Tensors(); }, both_losses).find("no tensor"),
              std::string::npos);
    EXPECT_NE(message_of(two, make_loss("mse")).find("2 targets"), std::string::npos);
    EXPECT_NE(message_of(two, [](const Tensors& outputs, const Tensors&) { return outputs[0]; })
                  .find("float64 [4]"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace rondo::training_test
