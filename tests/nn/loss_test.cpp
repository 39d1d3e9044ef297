#include "rondo/nn/loss.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/nn/loss_names.h"
#include "tests/errors.h"

namespace rondo::loss_test {
namespace {

namespace F = torch::nn::functional;

using testing::expect_facts;
using testing::message_of;
using testing::states;

TEST(NamedLosses, EqualLibtorchs) {
  torch::manual_seed(1);
  const at::Tensor output = torch::randn({5, 3}, torch::kDouble);
  const at::Tensor target = torch::rand({5, 3}, torch::kDouble);
  const at::Tensor classes = torch::tensor({0, 2, 1, 1, -100}, torch::kLong);
  const at::Tensor probabilities = output.log_softmax(-1);
  const std::map<std::string, std::pair<at::Tensor, at::Tensor>> expected = {
      {"bce_with_logits", {F::binary_cross_entropy_with_logits(output, target), target}},
      {"cross_entropy", {F::cross_entropy(output, classes), classes}},
      {"l1", {F::l1_loss(output, target), target}},
      {"mse", {F::mse_loss(output, target), target}},
      {"nll", {F::nll_loss(probabilities, classes), classes}},
      {"smooth_l1", {F::smooth_l1_loss(output, target), target}}};
  std::vector<std::string> names;
  for (const auto& [name, value] : expected) {
    names.push_back(name);
    const LossFunction loss = make_loss(name);
    const Loss result = loss({name == "nll" ? probabilities : output}, {value.second}, 5);
    EXPECT_NEAR(result.mean.item<double>(), value.first.item<double>(), 1e-12) << name;
    EXPECT_EQ(result.predictions, name == "cross_entropy" || name == "nll" ? 4 : 15) << name;
    EXPECT_EQ(result.predictions, loss.predictions({value.second}, 5)) << name;
    EXPECT_NEAR(result.sum.item<double>(),
                result.mean.item<double>() * static_cast<double>(result.predictions), 1e-12)
        << name;
  }
  EXPECT_EQ(loss_names(), names);
  EXPECT_EQ(std::vector<std::string>(std::begin(kLossNames), std::end(kLossNames)), names);
}

// The sum of many 16-bit losses has the precision of float32, and float16 does not overflow.
TEST(NamedLosses, SumInFloat32) {
  torch::manual_seed(2);
  const std::int64_t rows = 20000;
  const at::Tensor classes = at::randint(0, 8, {rows}, at::kLong);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor output = (at::randn({rows, 8}) * 8).to(type).set_requires_grad(true);
    const at::Tensor target = at::rand({rows, 8});
    for (const std::string name : {"bce_with_logits", "cross_entropy", "l1", "mse", "smooth_l1"}) {
      const at::Tensor& expected = name == "cross_entropy" ? classes : target;
      const Loss loss = make_loss(name)({output}, {expected}, rows);
      const Loss exact = make_loss(name)({output.detach().to(at::kDouble)}, {expected}, rows);
      EXPECT_EQ(loss.sum.scalar_type(), at::kFloat) << name;
      const double relative = loss.mean.item<double>() / exact.mean.item<double>() - 1;
      EXPECT_NEAR(relative, 0, 5e-4) << name << " " << type;
      loss.mean.backward();
      EXPECT_EQ(output.grad().scalar_type(), type);
      EXPECT_TRUE(output.grad().isfinite().all().item<bool>()) << name << " " << type;
    }
    const LossFunction weighted = weighted_loss("cross_entropy", {.classes = std::vector<double>(8, 1.0)});
    EXPECT_EQ(weighted({output}, {classes}, rows).mean.scalar_type(), at::kFloat);
  }
}

// An int64 target of -100 is an ordinary number for losses of elements: it counts in the loss and in the
// batch's share of a window.
TEST(NamedLosses, OfElementsCountEveryWholeNumber) {
  const at::Tensor target = torch::tensor({-100, 1, -100, 4}, torch::kLong);
  for (const std::string name : {"bce_with_logits", "l1", "mse", "smooth_l1"}) {
    const LossFunction loss = make_loss(name);
    EXPECT_EQ(loss.predictions({target}, 4), 4) << name;
    EXPECT_EQ(loss({torch::zeros({4}, torch::kDouble)}, {target}, 4).predictions, 4) << name;
  }
  const LossFunction classes = make_loss("cross_entropy");
  EXPECT_EQ(classes.predictions({target}, 4), 2);
}

TEST(NamedLosses, RankWithoutSamplesHasZeroLoss) {
  for (const std::string& name : loss_names()) {
    const at::Tensor output = torch::zeros({0, 3}).requires_grad_();
    const bool classes = name == "cross_entropy" || name == "nll";
    const at::Tensor target = classes ? torch::zeros({0}, torch::kLong) : torch::zeros({0, 3});
    const Loss loss = make_loss(name)({output}, {target}, 0);
    EXPECT_EQ(loss.mean.item<double>(), 0) << name;
    EXPECT_EQ(loss.predictions, 0) << name;
    loss.mean.backward();
  }
}

TEST(NamedLosses, WrongOnesSayWhatAndWhatIsAllowed) {
  const std::string unknown = message_of<UsageError>([] { make_loss("hinge"); });
  EXPECT_TRUE(states(unknown, "'hinge'") && states(unknown, "smooth_l1") && states(unknown, "cross_entropy"))
      << unknown;
  const std::string sizes = message_of<UsageError>([] {
    make_loss("mse")({torch::zeros({2, 3})}, {torch::zeros({2})}, 2);
  });
  EXPECT_TRUE(states(sizes, "mse") && states(sizes, "[2, 3]") && states(sizes, "[2]")) << sizes;
  const std::string classes = message_of<UsageError>([] {
    make_loss("cross_entropy")({torch::zeros({2, 3})}, {torch::zeros({2})}, 2);
  });
  EXPECT_TRUE(states(classes, "cross_entropy") && states(classes, "int64") && states(classes, "float32 [2]"))
      << classes;
  // The function itself, the Trainer's default.
  for (const at::Tensor& target : {torch::zeros({3}, at::kLong), torch::zeros({2})}) {
    const std::string message = message_of<UsageError>([&] { cross_entropy(torch::zeros({2, 4}), target); });
    EXPECT_TRUE(states(message, "[2, 4]") && states(message, "int64")) << message;
  }
}

TEST(LossFunction, OfTheUserCountsSamples) {
  const LossFunction loss = [](const at::Tensor& output, const at::Tensor& target) {
    return (output - target).square().mean();
  };
  const at::Tensor output = torch::tensor({1.0, 3.0}, torch::kDouble);
  const Loss result = loss({output}, {torch::zeros({2}, torch::kDouble)}, 2);
  EXPECT_EQ(result.mean.item<double>(), 5);
  EXPECT_EQ(result.sum.item<double>(), 10);
  EXPECT_EQ(result.predictions, 2);
  EXPECT_EQ(loss.predictions({torch::zeros({2})}, 2), 2);
  // The function is not called for an empty batch.
  EXPECT_EQ(loss({torch::zeros({0})}, {torch::zeros({0})}, 0).mean.item<double>(), 0);
}

TEST(LossFunction, TakesSeveralOutputsAndTargets) {
  const LossFunction loss = [](const std::vector<at::Tensor>& outputs,
                               const std::vector<at::Tensor>& targets) {
    return (outputs[0] - targets[0]).abs().mean() + 2 * (outputs[1] - targets[1]).abs().mean();
  };
  const Loss result =
      loss({torch::ones({4, 2}), torch::ones({4})}, {torch::zeros({4, 2}), torch::zeros({4})}, 4);
  EXPECT_EQ(result.mean.item<double>(), 3);
  EXPECT_EQ(result.predictions, 4);

  const LossFunction single = make_loss("mse");
  const std::string message = message_of<UsageError>([&] {
    single({torch::ones({4}), torch::ones({4})}, {torch::zeros({4})}, 4);
  });
  EXPECT_TRUE(states(message, "2 outputs") && states(message, "1 targets")) << message;
}

TEST(LossFunction, ReturnsOneNumber) {
  const LossFunction loss = [](const at::Tensor& output, const at::Tensor& target) {
    return output - target;
  };
  const std::string message = message_of<UsageError>([&] {
    loss({torch::ones({4, 2})}, {torch::zeros({4, 2})}, 4);
  });
  EXPECT_TRUE(states(message, "[4, 2]") && states(message, "one element")) << message;
  const LossFunction nothing = [](const at::Tensor&, const at::Tensor&) { return at::Tensor(); };
  EXPECT_TRUE(states(message_of<UsageError>([&] { nothing({torch::ones({4})}, {torch::zeros({4})}, 4); }),
                     "no tensor"));
}

TEST(LossFunction, OfTheUserThatCountsHasItsSum) {
  const at::Tensor output = torch::ones({4, 2}), target = torch::zeros({4, 2});
  const LossFunction without = [](const at::Tensor& out, const at::Tensor& wanted) {
    return Loss{(out - wanted).abs().mean(), {}, 8};
  };
  expect_facts(message_of<UsageError>([&] { without({output}, {target}, 4); }),
               {"8 predictions", "no tensor", "one element"});
  const LossFunction not_added = [](const at::Tensor& out, const at::Tensor& wanted) {
    const at::Tensor each = (out - wanted).abs();
    return Loss{each.mean(), each.detach(), 8};
  };
  expect_facts(message_of<UsageError>([&] { not_added({output}, {target}, 4); }),
               {"8 predictions", "[4, 2]", "one element"});
}

TEST(LossFunction, HasAGradientWhereTheOutputsHaveOne) {
  const at::Tensor output = torch::ones({4}).requires_grad_(), target = torch::zeros({4});
  const LossFunction detached = [](const at::Tensor& out, const at::Tensor& wanted) {
    return (out.detach() - wanted).abs().mean();
  };
  const LossFunction constant = [](const at::Tensor&, const at::Tensor&) {
    return Loss{torch::tensor(1.0), torch::tensor(4.0), 4};
  };
  for (const LossFunction& loss : {detached, constant})
    expect_facts(message_of<UsageError>([&] { loss({output}, {target}, 4); }), {"gradient", "detach"});
  // No gradient is expected here.
  EXPECT_EQ(detached({output.detach()}, {target}, 4).mean.item<double>(), 1);
  const at::NoGradGuard no_gradients;
  EXPECT_EQ(detached({output}, {target}, 4).mean.item<double>(), 1);
}

TEST(JointLoss, MayHaveAConstantPart) {
  const at::Tensor output = torch::ones({4}).requires_grad_(), target = torch::zeros({4});
  const LossFunction none = [](const at::Tensor&, const at::Tensor&) { return torch::zeros({}); };
  const LossFunction joint = joint_loss({{.loss = make_loss("mse")}, {.loss = none}});
  joint({output, output}, {target, target}, 4).mean.backward();
  EXPECT_TRUE(torch::equal(output.grad(), torch::full({4}, 0.5)));
  const LossFunction of_nothing = joint_loss({{.loss = none}, {.loss = none}});
  expect_facts(message_of<UsageError>([&] {
                 of_nothing({output, output}, {target, target}, 4);
               }),
               {"gradient"});
}

}  // namespace
}  // namespace rondo::loss_test
