#include "rondo/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/precision/options.h"

namespace rondo::autocast_test {
namespace {

at::ScalarType dtype_of_mm() {
  const at::Tensor x = torch::rand({4, 4});
  return x.mm(x).scalar_type();
}

TEST(Autocast, GivesTheDtypesOfPyTorchsLists) {
  std::ifstream file(std::string(RONDO_SOURCE_DIR) + "/tests/precision/torch_amp_reference.json");
  const nlohmann::json reference = nlohmann::json::parse(file).at("autocast");
  const at::Tensor x = torch::rand({4, 4});
  const at::Tensor image = torch::rand({1, 2, 4, 4});
  const std::map<std::string, std::function<at::Tensor()>> operations = {
      {"mm", [&] { return x.mm(x); }},
      {"linear", [&] { return at::linear(x, x); }},
      {"bmm", [&] { return x.unsqueeze(0).bmm(x.unsqueeze(0)); }},
      {"conv2d",
       [&] {
         return at::conv2d(image, torch::rand({2, 2, 3, 3}));
       }},
      {"softmax", [&] { return x.mm(x).softmax(1); }},
      {"layer_norm", [&] { return at::layer_norm(x.mm(x), {4}); }},
      {"sum", [&] { return x.mm(x).sum(); }},
      {"exp", [&] { return x.mm(x).exp(); }},
      {"mse_loss", [&] { return at::mse_loss(x.mm(x), x); }},
      {"cross_entropy_loss",
       [&] {
         return at::cross_entropy_loss(x.mm(x), torch::tensor({0, 1, 2, 3}));
       }},
      {"add", [&] { return x.mm(x) + x; }},
      {"gelu", [&] { return at::gelu(x.mm(x)); }}};
  for (const auto& [dtype, table] : reference.items()) {
    const Autocast autocast(at::kCPU, parse_float_dtype(dtype, "dtype"));
    for (const auto& [name, expected] : table.items()) {
      EXPECT_EQ(float_dtype_name(operations.at(name)().scalar_type()), expected) << dtype << " " << name;
    }
  }
}

TEST(Autocast, EndsWithItsScopeAndNests) {
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    EXPECT_EQ(dtype_of_mm(), at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kHalf);
      EXPECT_EQ(dtype_of_mm(), at::kHalf);
      const Autocast off(at::kCPU, at::kHalf, /*enabled=*/false);
      EXPECT_EQ(dtype_of_mm(), at::kFloat);
    }
    EXPECT_EQ(dtype_of_mm(), at::kBFloat16);
  }
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
}

TEST(Autocast, LeavesWeightsAndTheirGradientsInFloat32) {
  at::Tensor weight = torch::rand({4, 4}).requires_grad_(true);
  at::Tensor loss;
  for (int step = 0; step < 2; ++step) {  // the second step must see its current weight
    {
      const Autocast autocast(at::kCPU, at::kBFloat16);
      loss = at::linear(torch::ones({1, 4}), weight).sum();
    }
    loss.backward();
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    EXPECT_NEAR(loss.item<float>(), weight.sum().item<float>(), 0.1);
    const torch::NoGradGuard no_gradients;
    weight.add_(1);
  }
}

TEST(Autocast, RefusesOtherDtypes) {
  EXPECT_THROW(Autocast(at::kCPU, at::kFloat), UsageError);
  EXPECT_THROW(Autocast(at::kCPU, at::kLong), UsageError);
  EXPECT_EQ(dtype_of_mm(), at::kFloat);
}

}  // namespace
}  // namespace rondo::autocast_test
