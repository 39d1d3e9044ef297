#include "rondo/nn/wrap.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/linear.h"
#include "rondo/nn/unit_state.h"
#include "tests/errors.h"

namespace rondo::wrap_rules_test {
namespace {

using testing::message_of;
using testing::states;
using Names = std::vector<std::string>;

// A Sequential that another one can hold.
struct PairImpl : torch::nn::SequentialImpl {
  PairImpl()
      : SequentialImpl(torch::nn::Linear(8, 2), torch::nn::LayerNorm(torch::nn::LayerNormOptions({2}))) {}
  at::Tensor forward(at::Tensor input) { return SequentialImpl::forward(std::move(input)); }
};
TORCH_MODULE(Pair);

torch::nn::Sequential layers() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::ReLU(), Pair());
}

Names units_by(const Names& rules) {
  auto model = layers();
  wrap_units(*model, rules);
  Names names;
  for (UnitState* unit : units_of(*model)) names.push_back(unit->name());
  // Names of parameters do not change.
  EXPECT_EQ(model->named_parameters().keys(), layers()->named_parameters().keys());
  EXPECT_EQ(model->forward(torch::ones({3, 4})).sizes(), (at::IntArrayRef{3, 2}));
  return names;
}

TEST(WrapRules, ByTypeNameAndCount) {
  EXPECT_EQ(units_by({"type:Linear"}), (Names{"0", "2.0"}));
  EXPECT_EQ(units_by({"type:torch::nn::LayerNormImpl"}), (Names{"2.1"}));
  EXPECT_EQ(units_by({"name:2*"}), (Names{"2", "2.0", "2.1"}));
  EXPECT_EQ(units_by({"name:?.1", "name:0"}), (Names{"0", "2.1"}));
  EXPECT_EQ(units_by({"parameters:22"}), (Names{"0", "2"}));
  EXPECT_EQ(units_by({"all"}), (Names{"0", "2", "2.0", "2.1"}));
}

TEST(WrapRules, OfLibtorchsLinearAreOfRondosToo) {
  for (const char* type :
       {"Linear", "LinearImpl", "rondo::nn::Linear", "torch::nn::Linear", "torch::nn::LinearImpl"}) {
    torch::nn::Sequential model(nn::Linear(4, 2), torch::nn::ReLU());
    EXPECT_EQ(wrap_units(*model, Names{str("type:", type)}), 1) << type;
    EXPECT_EQ(model->forward(torch::ones({3, 4})).sizes(), (at::IntArrayRef{3, 2}));
  }
}

TEST(WrapRules, SayWhatIsAllowed) {
  for (const char* rule : {"", "some", "type:", "kind:Linear", "parameters:0", "parameters:many"}) {
    const std::string message = message_of<UsageError>([&] { parse_wrap_rules({rule}); });
    EXPECT_TRUE(states(message, "type:CLASS") && states(message, "parameters:COUNT")) << message;
  }
  auto model = layers();
  const std::string nothing = message_of<UsageError>([&] { wrap_units(*model, Names{"type:Conv2d"}); });
  EXPECT_TRUE(states(nothing, "2.0") && states(nothing, "18 parameters")) << nothing;
  torch::nn::Linear alone(2, 2);
  EXPECT_TRUE(states(message_of<UsageError>([&] { wrap_units(*alone, Names{"all"}); }), "rondo::Unit"));
}

}  // namespace
}  // namespace rondo::wrap_rules_test
