// Compares optimizers with Python's torch.optim: with the same parameters and given gradients, the weights
// after 1, 2 and 20 steps are equal within float32 rounding (optimizer_reference.json, written by
// make_optimizer_reference.py).
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/json_strict.h"
#include "rondo/nn/optimizers/optimizer.h"

namespace rondo::optimizer_reference_test {
namespace {

// Implements values() of the script.
at::Tensor values(at::IntArrayRef shape, std::int64_t factor, std::int64_t shift) {
  const at::Tensor numbers = torch::arange(c10::multiply_integers(shape), at::kLong);
  return ((numbers * factor + shift).remainder(64) - 32).to(at::kFloat).div(64).view(shape);
}

OptimizerOptions options_of(const nlohmann::json& one) {
  const nlohmann::json& given = one.at("options");
  OptimizerOptions options{.name = one.at("optimizer")};
  options.learning_rate = given.at("learning_rate");
  options.weight_decay = given.value("weight_decay", options.weight_decay);
  options.momentum = given.value("momentum", options.momentum);
  options.beta1 = given.value("beta1", options.beta1);
  options.beta2 = given.value("beta2", options.beta2);
  options.epsilon = given.value("epsilon", options.epsilon);
  return options;
}

TEST(OptimizerReference, StepsAreThoseOfTorchInPython) {
  const nlohmann::json reference =
      read_json_file(std::string(RONDO_SOURCE_DIR) + "/tests/train/optimizer_reference.json");
  std::set<std::string> compared;
  for (const nlohmann::json& one : reference.at("cases")) {
    torch::nn::Module module;
    const std::vector<std::vector<std::int64_t>> shapes = reference.at("shapes");
    for (std::size_t i = 0; i < shapes.size(); ++i)
      module.register_parameter("p" + std::to_string(i),
                                values(shapes[i], 29, 7 + static_cast<std::int64_t>(i)));
    const auto optimizer = make_optimizer(options_of(one), module);
    const auto parameters = module.parameters();
    for (std::int64_t step = 1; step <= 20; ++step) {
      for (std::size_t i = 0; i < parameters.size(); ++i)
        parameters[i].mutable_grad() = values(shapes[i], 37, 11 * step + static_cast<std::int64_t>(i));
      optimizer->step();
      const auto expected = one.at("weights").find(std::to_string(step));
      if (expected == one.at("weights").end()) continue;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor wanted = torch::tensor(expected->at(i).get<std::vector<double>>(), at::kDouble);
        const at::Tensor got = parameters[i].detach().flatten().to(at::kDouble);
        EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-6)
            << one.at("optimizer") << " " << one.at("options") << ", step " << step << ", parameter " << i;
      }
    }
    compared.insert(one.at("optimizer").get<std::string>());
  }
  EXPECT_EQ(compared, (std::set<std::string>{"adagrad", "adam", "adamw", "sgd"}));
}

}  // namespace
}  // namespace rondo::optimizer_reference_test
