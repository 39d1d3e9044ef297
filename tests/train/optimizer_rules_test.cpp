// Compares LAMB, LARS, Lion and Adagrad with their formulas, also under strategies that shard parameters.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/optimizers/optimizer_fields.h"
#include "rondo/strategy/process_strategy.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::optimizer_rules_test {
namespace {

using testing::Digits;
using testing::run_ranks;
using testing::small_model;

// State of one parameter under a rule, in float64.
struct Reference {
  at::Tensor weight, first, second;
  int step = 0;
  explicit Reference(const at::Tensor& start)
      : weight(start.detach().clone()), first(torch::zeros_like(start)), second(torch::zeros_like(start)) {}
};
double norm_of(const at::Tensor& tensor) { return tensor.pow(2).sum().sqrt().item<double>(); }

void reference_step(const OptimizerOptions& o, Reference& p, const at::Tensor& gradient) {
  ++p.step;
  if (o.name == "lion") {
    const at::Tensor sign = (o.beta1 * p.first + (1 - o.beta1) * gradient).sign();
    p.weight = p.weight - o.learning_rate * (sign + o.weight_decay * p.weight);
    p.first = o.beta2 * p.first + (1 - o.beta2) * gradient;
  } else if (o.name == "lamb") {
    p.first = o.beta1 * p.first + (1 - o.beta1) * gradient;
    p.second = o.beta2 * p.second + (1 - o.beta2) * gradient * gradient;
    const at::Tensor mean = p.first / (1 - std::pow(o.beta1, p.step));
    const at::Tensor square = p.second / (1 - std::pow(o.beta2, p.step));
    const at::Tensor direction = mean / (square.sqrt() + o.epsilon) + o.weight_decay * p.weight;
    p.weight = p.weight - o.learning_rate * norm_of(p.weight) / norm_of(direction) * direction;
  } else if (o.name == "lars") {
    const double rate =
        o.trust * norm_of(p.weight) / (norm_of(gradient) + o.weight_decay * norm_of(p.weight) + o.epsilon);
    p.first = o.momentum * p.first + rate * (gradient + o.weight_decay * p.weight);
    p.weight = p.weight - o.learning_rate * p.first;
  } else {
    const at::Tensor decayed = gradient + o.weight_decay * p.weight;
    p.second = p.second + decayed * decayed;
    p.weight = p.weight - o.learning_rate * decayed / (p.second.sqrt() + o.epsilon);
  }
}

OptimizerOptions options_of(const std::string& name) {
  return {.name = name,
          .learning_rate = name == "lars" ? 1.0 : 0.01,
          .weight_decay = 0.1,
          .momentum = 0.9,
          .beta1 = 0.8,
          .beta2 = 0.95,
          .trust = 0.02};
}

class Rules : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, Rules, ::testing::Values("adagrad", "lamb", "lars", "lion"),
                         [](const auto& info) { return info.param; });

TEST_P(Rules, EqualTheirFormulas) {
  const OptimizerOptions options = options_of(GetParam());
  torch::manual_seed(1);
  torch::nn::Linear model(torch::nn::LinearOptions(5, 7));
  model->to(torch::kDouble);
  std::vector<Reference> references;
  for (const at::Tensor& parameter : model->parameters()) references.emplace_back(parameter);
  auto optimizer = make_optimizer(options, *model);
  for (int step = 0; step < 30; ++step) {
    const auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor gradient = torch::randn_like(parameters[i]);
      parameters[i].mutable_grad() = gradient;
      reference_step(options, references[i], gradient);
    }
    optimizer->step();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      ASSERT_TRUE(torch::allclose(parameters[i], references[i].weight, 1e-10, 1e-12)) << step << " " << i;
  }
}

// Returns the weights after some steps.
std::vector<at::Tensor> weights_after_training(Context& context, const std::string& strategy_name,
                                               const OptimizerOptions& options) {
  auto strategy = all_strategies().make(strategy_name, context);
  const Model model = small_model();
  model.module->to(torch::kDouble);
  const Digits data(48);
  std::vector<std::int64_t> all(48);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = data.get(all);
  const auto rows = std::make_shared<testing::Rows>(batch.input().to(torch::kDouble), batch.target(), 8);
  Trainer trainer(*strategy, model);
  trainer.compile(options);
  trainer.fit(rows, {.steps = 6, .batch_size = 12 / context.world_size(), .seed = 5});
  trainer.evaluate(*rows);  // gathers the parameters
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : model.module->parameters()) result.push_back(tensor.detach().clone());
  barrier(context.world());
  return result;
}

TEST_P(Rules, ComputeUnderShardingWhatOneProcessComputes) {
  OptimizerOptions options = options_of(GetParam());
  options.decayed = Decayed::matrices;
  std::vector<at::Tensor> expected;
  run_ranks(1, "native",
            [&](Context& context) { expected = weights_after_training(context, "one_device", options); });
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    for (const int ranks : {2, 3}) {
      run_ranks(ranks, "native", [&](Context& context) {
        const std::vector<at::Tensor> own = weights_after_training(context, strategy, options);
        for (std::size_t i = 0; i < own.size(); ++i) {
          // The sign that Lion takes of a sum may be that of a rounding error.
          EXPECT_TRUE(torch::allclose(own[i], expected[i], 1e-7, 1e-9))
              << strategy << " " << ranks << " " << (own[i] - expected[i]).abs().max();
        }
      });
    }
  }
}

TEST_P(Rules, AreInCheckpoints) {
  const TemporaryDirectory directory;
  run_ranks(2, "native", [&](Context& context) {
    auto strategy = all_strategies().make("zero2", context);
    const auto data = std::make_shared<Digits>(48);
    const auto trained = [&](std::int64_t steps, bool resumed) {
      Trainer trainer(*strategy, small_model());
      trainer.compile(options_of(GetParam()));
      if (resumed) trainer.restore(directory.path());
      const FitResult result = trainer.fit(data, {.steps = steps, .batch_size = 6});
      if (steps == 4) trainer.save(directory.path(), 1);
      return *result.loss;
    };
    const double straight = trained(8, false);
    trained(4, false);
    EXPECT_EQ(trained(8, true), straight);
  });
}

// A model whose ranks have shards of parameters; norms are summed only by `sum`, if given.
class SpreadModel final : public PreparedModel {
 public:
  SpreadModel(std::shared_ptr<torch::nn::Module> module, NormSum sum)
      : module_(std::move(module)), parts_(*module_, std::move(sum)) {}
  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }

 private:
  class Parts final : public UndividedModel {
   public:
    Parts(torch::nn::Module& module, NormSum sum)
        : UndividedModel(module, {}, {.optimizes_shards = true}), sum_(std::move(sum)) {}
    NormSum norm_sum() override { return sum_; }

   private:
    NormSum sum_;
  };
  std::shared_ptr<torch::nn::Module> module_;
  Parts parts_;
};
class SpreadStrategy final : public ProcessStrategy {
 public:
  explicit SpreadStrategy(const Context& context, NormSum sum = {})
      : ProcessStrategy("spread", context), sum_(std::move(sum)) {}
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override {
    return std::make_unique<SpreadModel>(std::move(module), sum_);
  }

 private:
  NormSum sum_;
};

TEST(FullNorms, AreRefusedIfNotSummedOverRanks) {
  run_ranks(1, "native", [](Context& context) {
    SpreadStrategy strategy(context);
    Trainer trainer(strategy, small_model());
    for (const char* name : {"lamb", "lars"}) {
      try {
        trainer.compile(OptimizerOptions{.name = name});
        FAIL() << name;
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("spread"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("LAMB"), std::string::npos) << error.what();
      }
    }
    trainer.compile(OptimizerOptions{.name = "lion"});
  });
}

TEST(FullNorms, AreSummedForModelsWithMasterWeights) {
  run_ranks(1, "native", [](Context& context) {
    std::vector<at::Tensor> told;
    SpreadStrategy strategy(
        context, [&](const std::vector<at::Tensor>& parameters, at::Tensor&) { told = parameters; });
    const Model model = small_model();
    Trainer trainer(strategy, model, c10::kCPU, {.level = OptLevel::O2, .dtype = at::kBFloat16});
    trainer.compile(OptimizerOptions{.name = "lamb", .weight_decay = 0.1, .decayed = Decayed::matrices});
    trainer.fit(std::make_shared<Digits>(16), {.steps = 1, .batch_size = 8});
    const std::vector<at::Tensor> parameters = model.module->parameters();
    ASSERT_EQ(told.size(), parameters.size());
    // The order of two parameter groups: matrices, then the others.
    const std::vector<std::size_t> order = {0, 2, 1, 3};
    for (std::size_t i = 0; i < told.size(); ++i) EXPECT_TRUE(told[i].is_same(parameters[order[i]])) << i;
  });
}

TEST(ParameterGroups, DecayOnlyMatricesByTheWholeModelsShapes) {
  for (const char* strategy_name : {"ddp", "zero3"}) {
    run_ranks(2, "native", [&](Context& context) {
      auto strategy = all_strategies().make(strategy_name, context);
      Trainer trainer(*strategy, small_model());
      trainer.compile(OptimizerOptions{.name = "adam", .weight_decay = 0.5, .decayed = Decayed::matrices});
      auto& groups = trainer.optimizer().param_groups();
      ASSERT_EQ(groups.size(), 2U) << strategy_name;
      const auto decay_of = [&](std::size_t group) {
        return static_cast<torch::optim::AdamOptions&>(groups[group].options()).weight_decay();
      };
      EXPECT_EQ(decay_of(0), 0.5);
      EXPECT_EQ(decay_of(1), 0.0);
      EXPECT_EQ(groups[0].params().size(), 2U);  // weights of the two linear layers
      EXPECT_EQ(groups[1].params().size(), 2U);
    });
  }
}

TEST(ParameterGroups, AreNamedByPatterns) {
  const Model model = small_model();
  const auto sizes = [&](std::vector<std::string> undecayed) {
    auto optimizer = make_optimizer({.name = "sgd", .weight_decay = 0.1, .undecayed = std::move(undecayed)},
                                    *model.module);
    std::vector<std::size_t> sizes;
    for (const auto& group : optimizer->param_groups()) sizes.push_back(group.params().size());
    return sizes;
  };
  EXPECT_EQ(sizes({}), (std::vector<std::size_t>{4}));
  EXPECT_EQ(sizes({"*.bias"}), (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(sizes({"0.*", "3.bias"}), (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(sizes({"*"}), (std::vector<std::size_t>{4}));
  EXPECT_THROW(sizes({"*.scale"}), UsageError);
}

}  // namespace
}  // namespace rondo::optimizer_rules_test
