#include "rondo/train/save_training.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/nn/unit.h"
#include "rondo/parallel/registry.h"
#include "rondo/strategy/summon_full_params.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::save_training_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::run_ranks;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 6) {
    // Does not draw from the generator that the ranks, which are threads, share.
    const at::NoGradGuard no_gradients;
    for (int i = 0; i < 2; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Unit<torch::nn::Linear>(width, width)));
    float value = 0;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(torch::linspace(value, value + 0.5F, parameter.numel()).view_as(parameter));
      value += 0.5F;
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = torch::tanh(layer(x));
    return x;
  }
  std::vector<Unit<torch::nn::Linear>> layers;
};
TORCH_MODULE(Net);

// A custom loop.
struct Loop {
  Loop(const Context& ranks, const std::string& name)
      : context(ranks),
        strategy(all_strategies().make(name, ranks)),
        prepared(strategy->prepare(net.ptr())),
        optimizer(prepared->module().parameters(), torch::optim::AdamWOptions(0.05)) {}

  void step(std::int64_t number) {
    const at::Tensor input =
        torch::linspace(-1, 1, 12).view({2, 6}) * static_cast<float>(number + context.rank() + 1);
    optimizer.zero_grad();
    prepared->begin_step({.samples = 2, .gradients_are_read = false});
    net(input).square().sum().backward();
    prepared->finish_backward();
    prepared->step(optimizer);
  }
  std::vector<at::Tensor> weights() {
    const SummonFullParams full(*prepared);
    std::vector<at::Tensor> copies;
    for (const at::Tensor& parameter : net->parameters()) copies.push_back(parameter.detach().clone());
    return copies;
  }
  OwnTraining training() { return {context, *net, *prepared, optimizer}; }

  const Context& context;
  Net net;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<PreparedModel> prepared;
  torch::optim::AdamW optimizer;
};

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, bool bits) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(bits ? torch::equal(a[i], b[i]) : torch::allclose(a[i], b[i], 1e-5, 1e-6))
        << "parameter " << i;
}

TEST(SaveTraining, CustomLoopResumesUnderAnyStrategy) {
  for (const char* name : {"ddp", "zero1", "zero3"}) {
    TemporaryDirectory directory;
    std::vector<at::Tensor> uninterrupted;
    run_ranks(2, "native", [&](Context& context) {
      Loop loop(context, name);
      for (int i = 0; i < 3; ++i) loop.step(i);
      save(directory.path(), loop.training(), 3, {{"best", 0.25}});
      for (int i = 3; i < 5; ++i) loop.step(i);
      const std::vector<at::Tensor> weights = loop.weights();
      if (context.rank() == 0) uninterrupted = weights;
    });
    // Bit-identical under the same strategy, and equal up to the order of sums under another one.
    for (const char* other : {name, "ddp", "zero3"}) {
      run_ranks(2, "native", [&](Context& context) {
        Loop loop(context, other);
        loop.step(7);  // an unrelated step first
        const OwnPosition position = load(directory.path(), loop.training());
        EXPECT_EQ(position.step, 3);
        EXPECT_EQ(position.values.at("best"), 0.25);
        for (auto i = position.step; i < 5; ++i) loop.step(i);
        const std::vector<at::Tensor> weights = loop.weights();
        if (context.rank() == 0) expect_same(weights, uninterrupted, std::string(other) == name);
      });
    }
  }
}

// A loop under DistributedDataParallel.
struct DdpLoop {
  explicit DdpLoop(const Context& ranks)
      : context(ranks),
        ddp(*net, ranks.world()),
        optimizer(net->parameters(), torch::optim::AdamWOptions(0.05)) {}

  void step(std::int64_t number) {
    const at::Tensor input =
        torch::linspace(-1, 1, 12).view({2, 6}) * static_cast<float>(number + context.rank() + 1);
    optimizer.zero_grad();
    ddp.forward(net, input).square().sum().backward();
    optimizer.step();
  }
  DdpTraining training() { return {context, *net, ddp, optimizer}; }

  const Context& context;
  Net net;
  DistributedDataParallel ddp;
  torch::optim::AdamW optimizer;
};

TEST(SaveTraining, DdpLoopResumesAndFitsAnyStrategy) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    DdpLoop loop(context);
    for (int i = 0; i < 3; ++i) loop.step(i);
    save(directory.path(), loop.training(), 3, {{"best", 0.25}});
    const auto weights_of = [](DdpLoop& of) {
      std::vector<at::Tensor> copies;
      for (const at::Tensor& parameter : of.net->parameters()) copies.push_back(parameter.detach().clone());
      return copies;
    };
    for (int i = 3; i < 5; ++i) loop.step(i);

    DdpLoop other(context);
    other.step(7);  // an unrelated step first
    const OwnPosition position = load(directory.path(), other.training());
    EXPECT_EQ(position.step, 3);
    EXPECT_EQ(position.values.at("best"), 0.25);
    for (int i = 3; i < 5; ++i) other.step(i);
    expect_same(weights_of(other), weights_of(loop), true);

    Loop sharded(context, "zero3");
    EXPECT_EQ(load(directory.path(), sharded.training()).step, 3);
    for (int i = 3; i < 5; ++i) sharded.step(i);
    expect_same(sharded.weights(), weights_of(loop), false);
    save(directory.path(), sharded.training(), 5);
    EXPECT_EQ(load(directory.path(), other.training()).step, 5);
    expect_same(weights_of(other), weights_of(loop), false);
  });
}

// A loop of train_step(), for strategies without prepare(module).
struct StepLoop {
  static OptimizerFactory adamw() {
    return [](torch::nn::Module& module) {
      return std::make_unique<torch::optim::AdamW>(module.parameters(), torch::optim::AdamWOptions(0.05));
    };
  }
  StepLoop(const Context& ranks, const std::string& name, const OptionValues& options,
           const PrecisionOptions& precision = {})
      : context(ranks), strategy(all_strategies().make(name, ranks, options)) {
    training = strategy->prepare(
        {.model = [] { return as_model(Net().ptr()); }, .optimizer = adamw(), .precision = precision});
  }
  void step(std::int64_t number) {
    const at::Tensor input = torch::linspace(-1, 1, 24).view({4, 6}) * static_cast<float>(number + 1);
    const Batch batch{.inputs = {input}, .targets = {torch::arange(4)}, .samples = 4};
    training->train_step({&batch, 1}, {.step = number, .learning_rate = {}, .stop_requested = {}});
  }
  std::vector<at::Tensor> weights() {
    training->prepared().unshard();
    std::vector<at::Tensor> copies;
    for (const at::Tensor& parameter : training->model().module->parameters())
      copies.push_back(parameter.detach().clone());
    return copies;
  }

  const Context& context;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<Training> training;
};

TEST(SaveTraining, TrainStepLoopResumesUnderOtherStrategies) {
  for (const char* const name : {"data_parallel", "mirrored", "central_storage"}) {
    const TemporaryDirectory directory;
    run_ranks(1, "native", [&](Context& context) {
      StepLoop loop(context, name, {{"replicas", "2"}});
      for (int i = 0; i < 3; ++i) loop.step(i);
      save(directory.path(), context, *loop.training, 3, {{"best", 0.5}});
      for (int i = 3; i < 5; ++i) loop.step(i);

      StepLoop other(context, name, {{"replicas", "2"}});
      other.step(7);  // an unrelated step first
      const OwnPosition position = load(directory.path(), context, *other.training);
      EXPECT_EQ(position.step, 3) << name;
      EXPECT_EQ(position.values.at("best"), 0.5) << name;
      for (auto i = position.step; i < 5; ++i) other.step(i);
      expect_same(other.weights(), loop.weights(), true);
    });
  }
}

// Checkpoints have the master weights and the loss scale.
TEST(SaveTraining, TrainStepLoopKeepsMasterWeightsAndScale) {
  for (const char* const name : {"ddp", "zero3"}) {
    const TemporaryDirectory directory;
    run_ranks(2, "native", [&](Context& context) {
      PrecisionOptions precision;
      precision.level = OptLevel::O2;
      StepLoop loop(context, name, {}, precision);
      for (int i = 0; i < 3; ++i) loop.step(i);
      save(directory.path(), context, *loop.training, 3);
      for (int i = 3; i < 5; ++i) loop.step(i);
      StepLoop other(context, name, {}, precision);
      other.step(7);
      EXPECT_EQ(load(directory.path(), context, *other.training).step, 3);
      for (int i = 3; i < 5; ++i) other.step(i);
      expect_same(other.weights(), loop.weights(), true);
    });
  }
}

TEST(SaveTraining, SaysWhatDiffers) {
  TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    Loop loop(context, "zero2");
    loop.step(0);
    save(directory.path(), loop.training(), 1);
    Net wide(8);
    const auto prepared = loop.strategy->prepare(wide.ptr());
    torch::optim::AdamW optimizer(prepared->module().parameters(), torch::optim::AdamWOptions(0.05));
    expect_facts(message_of<Error>([&] {
                   load(directory.path(), {context, *wide, *prepared, optimizer});
                 }),
                 {"layer0.weight", "6", "8"});
  });
}

}  // namespace
}  // namespace rondo::save_training_test
