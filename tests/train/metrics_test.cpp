#include "rondo/train/metrics/metrics.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <cmath>

#include "rondo/base/error.h"
#include "rondo/nn/loss.h"
#include "tests/backend/ranks.h"
#include "tests/train/digits.h"

namespace rondo::metrics_test {
namespace {

using testing::run_ranks;

// A model whose outputs are its inputs.
struct Echo : torch::nn::Module {
  Echo() : scale(register_parameter("scale", torch::ones({1}, torch::kDouble))) {}
  at::Tensor forward(const at::Tensor& input) { return input * scale; }
  at::Tensor scale;
};

// Returns the metric of `outputs` and `targets` on this many ranks, in batches of 3.
double figure(const Metric& metric, const at::Tensor& outputs, const at::Tensor& targets, int ranks = 1,
              const std::string& strategy_name = "ddp", const LossFunction& loss = cross_entropy) {
  std::vector<double> of_ranks(static_cast<std::size_t>(ranks));
  run_ranks(ranks, "native", [&](Context& context) {
    auto strategy = all_strategies().make(ranks == 1 ? "one_device" : strategy_name, context);
    Trainer trainer(*strategy, std::make_shared<Echo>());
    trainer.compile(OptimizerOptions{.name = "sgd"}, loss, {metric});
    const auto values = trainer.evaluate(testing::Rows(outputs, targets), {.batch_size = 3});
    of_ranks[static_cast<std::size_t>(context.rank())] = values.at(metric.name);
  });
  for (const double value : of_ranks) EXPECT_TRUE(value == of_ranks[0] || std::isnan(value)) << metric.name;
  return of_ranks[0];
}

at::Tensor random(std::vector<std::int64_t> sizes) {
  return torch::randn(sizes, at::detail::createCPUGenerator(11), torch::kDouble);
}
at::Tensor random_classes(std::int64_t count, std::int64_t classes) {
  return torch::randint(classes, {count}, at::detail::createCPUGenerator(12), torch::kLong);
}

TEST(Metrics, EqualTheirDefinitions) {
  const at::Tensor logits = torch::tensor({2.0, -1.0, 0.5, -3.0, 1.0, -0.5}, torch::kDouble);
  const at::Tensor classes = torch::tensor({1, 1, 0, 0, 1, 0});
  const LossFunction loss = make_loss("bce_with_logits");
  const auto of = [&](const Metric& metric) { return figure(metric, logits, classes, 1, "ddp", loss); };
  EXPECT_DOUBLE_EQ(of(precision_metric()), 2.0 / 3);  // predicted as class 1: 0, 2, 4
  EXPECT_DOUBLE_EQ(of(recall_metric()), 2.0 / 3);
  EXPECT_DOUBLE_EQ(of(f1_metric()), 2.0 / 3);
  EXPECT_DOUBLE_EQ(of(recall_metric({.threshold = 0.2})), 1.0);
  EXPECT_DOUBLE_EQ(of(auc_metric()), 7.0 / 9);  // pairs (-1, 0.5) and (-1, -0.5) are out of order
  // Two logits for each prediction give the same result.
  const at::Tensor two = torch::stack({torch::zeros_like(logits), logits}, 1);
  EXPECT_DOUBLE_EQ(figure(auc_metric(), two, classes), 7.0 / 9);
  EXPECT_DOUBLE_EQ(figure(precision_metric(), two, classes), 2.0 / 3);

  const at::Tensor three = torch::eye(3, torch::kDouble).index({torch::tensor({0, 1, 2, 2, 1})});
  const at::Tensor of_three = torch::tensor({0, 1, 1, 2, 0});
  EXPECT_DOUBLE_EQ(figure(precision_metric({.classes = 3}), three, of_three), (1.0 + 0.5 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(figure(recall_metric({.classes = 3}), three, of_three), (0.5 + 0.5 + 1.0) / 3);

  const at::Tensor outputs = random({10, 2});
  const at::Tensor targets = torch::zeros({10, 2}, torch::kDouble);
  EXPECT_NEAR(figure(mean_absolute_error_metric(), outputs, targets, 1, "ddp", make_loss("mse")),
              outputs.abs().mean().item<double>(), 1e-12);
  EXPECT_NEAR(figure(mean_squared_error_metric(), outputs, targets, 1, "ddp", make_loss("mse")),
              outputs.square().mean().item<double>(), 1e-12);
}

TEST(Metrics, OfTopKCountTargetsAmongTheLargest) {
  const at::Tensor logits = random({23, 7});
  const at::Tensor classes = random_classes(23, 7);
  double hits = 0;
  for (std::int64_t i = 0; i < 23; ++i) {
    const at::Tensor larger = logits[i].gt(logits[i][classes[i].item<std::int64_t>()]).sum();
    hits += larger.item<std::int64_t>() < 3 ? 1 : 0;
  }
  EXPECT_DOUBLE_EQ(figure(top_k_metric(3), logits, classes), hits / 23);
  EXPECT_DOUBLE_EQ(figure(top_k_metric(1), logits, classes), figure(accuracy_metric(), logits, classes));
  EXPECT_THROW(figure(top_k_metric(8), logits, classes), UsageError);
}

TEST(Metrics, AucEqualsTheCountOfPairsWithTies) {
  const at::Tensor logits = (random({60}) * 2).round();  // with many ties
  const at::Tensor classes = random_classes(60, 2);
  double won = 0;
  double pairs = 0;
  for (int i = 0; i < 60; ++i) {
    for (int j = 0; j < 60; ++j) {
      if (classes[i].item<std::int64_t>() != 1 || classes[j].item<std::int64_t>() != 0) continue;
      ++pairs;
      const double difference = (logits[i] - logits[j]).item<double>();
      won += difference > 0 ? 1 : difference == 0 ? 0.5 : 0;
    }
  }
  const LossFunction loss = make_loss("bce_with_logits");
  EXPECT_DOUBLE_EQ(figure(auc_metric(), logits, classes, 1, "ddp", loss), won / pairs);
  EXPECT_TRUE(std::isnan(figure(auc_metric(), logits, torch::ones_like(classes), 1, "ddp", loss)));
}

// 4 samples in 2 batches are fewer than 5 ranks: some have nothing to compute.
TEST(Metrics, AreBitEqualForAnyNumberOfRanks) {
  for (const std::int64_t samples : {4, 41}) {
    const at::Tensor logits = random({samples, 2});
    const at::Tensor classes = random_classes(samples, 2);
    for (const std::string& name : metric_names()) {
      const bool of_shape = name == "mae" || name == "mse";
      const Metric metric = make_metric(name, {.k = 2});
      const at::Tensor targets = of_shape ? torch::zeros_like(logits) : classes;
      const LossFunction loss = of_shape ? make_loss("mse") : LossFunction(cross_entropy);
      const double alone = figure(metric, logits, targets, 1, "ddp", loss);
      for (const int ranks : {2, 3, 5}) {
        EXPECT_EQ(figure(metric, logits, targets, ranks, "ddp", loss), alone) << name << " " << ranks;
      }
      EXPECT_EQ(figure(metric, logits, targets, 3, "zero3", loss), alone) << name;
    }
  }
}

TEST(Metrics, RefuseWhatCannotBe) {
  EXPECT_THROW(make_metric("bleu"), UsageError);
  EXPECT_THROW(make_metric("precision", {.classes = 1}), UsageError);
  EXPECT_THROW(make_metric("f1", {.threshold = 1.0}), UsageError);
  EXPECT_THROW(make_metric("top_k", {.k = 0}), UsageError);
  EXPECT_THROW(figure(auc_metric(), random({6, 3}), random_classes(6, 3)), UsageError);
  EXPECT_THROW(figure(precision_metric({.classes = 4}), random({6, 3}), random_classes(6, 3)), UsageError);
  for (const int ranks : {1, 2}) {
    try {
      figure(auc_metric(), torch::zeros({0, 2}, torch::kDouble), torch::zeros({0}, torch::kLong), ranks);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("auc"), std::string::npos) << error.what();
    }
  }
}

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl()
      : first(register_module("first", torch::nn::Linear(8, 8))),
        second(register_module("second", torch::nn::Linear(8, 1))) {}
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& input) {
    return {first(input), second(input).squeeze(-1)};
  }
  torch::nn::Linear first, second;
};

TEST(JointLoss, IsWeightedSumWithMetricsOfEachOutput) {
  const at::Tensor inputs = random({22, 8}).to(torch::kFloat);
  at::Tensor classes = random_classes(22, 8);
  classes.slice(0, 3, 9).fill_(kIgnoredTarget);
  const at::Tensor values = inputs.sum(1);
  const TensorDataset data({inputs}, {classes, values});
  std::vector<double> losses;
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, "native", [&](Context& context) {
      auto strategy = testing::strategy_for(context);
      static std::mutex mutex;
      std::shared_ptr<TwoHeadsImpl> model;
      {
        const std::lock_guard lock(mutex);
        torch::manual_seed(2);
        model = std::make_shared<TwoHeadsImpl>();
      }
      Trainer trainer(*strategy, model);
      const LossFunction loss =
          joint_loss({{.loss = cross_entropy, .weight = 0.5}, {.loss = make_loss("mse"), .weight = 2}});
      trainer.compile(OptimizerOptions{.name = "sgd", .learning_rate = 0.01}, loss,
                      {loss_metric(), of_output(0, "class_accuracy", accuracy_metric()),
                       of_output(1, "value_mae", mean_absolute_error_metric())});
      const FitResult result = trainer.fit(
          std::make_shared<TensorDataset>(data),
          {.epochs = 2, .batch_size = 12 / ranks, .validation = std::make_shared<TensorDataset>(data)});
      if (context.rank() != 0) return;
      EXPECT_EQ(result.validation.size(), 3U);
      losses.push_back(result.validation.at("loss"));
      losses.push_back(result.validation.at("value_mae"));
      if (ranks > 1) return;
      const auto [logits, predicted] = trainer.model().module->as<TwoHeadsImpl>()->forward(inputs);
      const double expected = 0.5 * cross_entropy(logits, classes).sum.item<double>() / 22 +
                              2 * torch::mse_loss(predicted, values).item<double>();
      EXPECT_NEAR(result.validation.at("loss"), expected, 1e-5);
    });
  }
  ASSERT_EQ(losses.size(), 6U);
  for (std::size_t i = 2; i < losses.size(); ++i) EXPECT_NEAR(losses[i], losses[i % 2], 1e-5) << i;
  EXPECT_THROW(joint_loss({}), UsageError);
}

TEST(WeightedLoss, CountsClassesAndSamplesAsTheyAreWeighted) {
  const at::Tensor logits = random({6, 3});
  const at::Tensor classes = random_classes(6, 3);
  const at::Tensor own = torch::tensor({1.0, 0.0, 2.0, 0.5, 1.0, 3.0}, torch::kDouble);
  const std::vector<double> of_classes{1.0, 2.0, 0.25};
  double expected = 0;
  for (std::int64_t i = 0; i < 6; ++i) {
    const auto c = classes[i].item<std::int64_t>();
    expected -= own[i].item<double>() * of_classes[static_cast<std::size_t>(c)] *
                torch::log_softmax(logits, 1)[i][c].item<double>();
  }
  const LossFunction loss = weighted_loss("cross_entropy", {.classes = of_classes, .samples = true});
  EXPECT_NEAR(loss({logits}, {classes, own}, 6).mean.item<double>(), expected / 6, 1e-12);
  EXPECT_NEAR(weighted_loss("mse", {.samples = true})({logits}, {torch::zeros_like(logits), own}, 6)
                  .mean.item<double>(),
              (logits.square().mean(1) * own).mean().item<double>(), 1e-12);
  EXPECT_THROW(weighted_loss("hinge", {}), UsageError);
  // libtorch would broadcast them to [4, 4].
  EXPECT_THROW(weighted_loss("mse", {})({torch::zeros({4, 1})}, {torch::zeros({4})}, 4), UsageError);
  EXPECT_THROW(weighted_loss("nll", {})({torch::zeros({4, 2})}, {torch::zeros({3}, at::kLong)}, 4),
               UsageError);
  EXPECT_THROW(weighted_loss("mse", {.classes = {1.0}}), UsageError);
  EXPECT_THROW(weighted_loss("nll", {.classes = {-1.0}}), UsageError);
  EXPECT_THROW(weighted_loss("nll", {.classes = {1.0, 1.0}})({logits}, {classes}, 6), UsageError);
  EXPECT_THROW(loss({logits}, {classes}, 6), UsageError);
}

}  // namespace
}  // namespace rondo::metrics_test
