#include "rondo/nn/unit.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>

#include "rondo/base/error.h"
#include "rondo/nn/unit_state.h"
#include "rondo/nn/wrap.h"

namespace rondo::unit_test {
namespace {

// Two outputs, one of them in a vector.
struct ForkImpl : torch::nn::Module {
  ForkImpl() { linear = register_module("linear", torch::nn::Linear(3, 3)); }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& a, at::Tensor b) {
    return {linear(a), {linear(b), a + b}};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Fork);

// A module that changes its input in place, as activation functions may.
struct InPlaceImpl : torch::nn::Module {
  InPlaceImpl() { linear = register_module("linear", torch::nn::Linear(3, 3)); }
  at::Tensor forward(at::Tensor x) { return linear(x.relu_()); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(InPlace);

class Recorder final : public UnitObserver {
 public:
  explicit Recorder(std::vector<std::string>& events) : events_(events) {}
  void pre_forward(UnitState& unit) override { events_.push_back("forward " + unit.name()); }
  void post_forward(UnitState& unit) override { events_.push_back("end forward " + unit.name()); }
  void pre_backward(UnitState& unit) override { events_.push_back("backward " + unit.name()); }
  void post_backward(UnitState& unit) override { events_.push_back("end backward " + unit.name()); }

 private:
  std::vector<std::string>& events_;
};

struct OuterImpl : torch::nn::Module {
  OuterImpl() {
    first = register_module("first", Unit<torch::nn::Linear>(3, 3));
    second = register_module("second", Unit<InPlace>());
    head = register_module("head", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(second(first(x))); }
  Unit<torch::nn::Linear> first{nullptr};
  Unit<InPlace> second{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Outer);

std::vector<std::string> observe(torch::nn::Module& model, const std::function<void()>& pass) {
  std::vector<std::string> events;
  const auto recorder = std::make_shared<Recorder>(events);
  for (UnitState* unit : units_of(model)) unit->attach(recorder);
  pass();
  for (UnitState* unit : units_of(model)) unit->detach(recorder);
  return events;
}

TEST(Unit, ReportsStartAndEndOfPasses) {
  Outer model;
  const auto events = observe(*model, [&] { model(at::ones({2, 3})).sum().backward(); });
  EXPECT_EQ(events, (std::vector<std::string>{"forward first", "end forward first", "forward second",
                                              "end forward second", "backward second", "end backward second",
                                              "backward first", "end backward first"}));
}

TEST(Unit, GradientsAreCompleteWhenItsBackwardEnds) {
  struct Check final : UnitObserver {
    void post_backward(UnitState& unit) override {
      for (const at::Tensor& parameter : unit.module().parameters()) complete &= parameter.grad().defined();
      ++calls;
    }
    bool complete = true;
    int calls = 0;
  };
  Outer model;
  const auto check = std::make_shared<Check>();
  for (UnitState* unit : units_of(*model)) unit->attach(check);
  model(at::ones({2, 3})).sum().backward();
  EXPECT_TRUE(check->complete);
  EXPECT_EQ(check->calls, 2);
}

TEST(Unit, GradientsAreThoseOfTheModuleInside) {
  torch::manual_seed(1);
  Outer model;
  const at::Tensor input = at::randn({4, 3});
  model(input).square().sum().backward();
  std::vector<at::Tensor> expected;
  for (at::Tensor& parameter : model->parameters()) {
    expected.push_back(parameter.grad().clone());
    parameter.mutable_grad().reset();
  }
  observe(*model, [&] { model(input).square().sum().backward(); });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(model->parameters()[i].grad(), expected[i])) << i;
  }
}

TEST(Unit, SeesTuplesAndVectorsOfTensors) {
  Unit<Fork> fork;
  const at::Tensor a = at::ones({1, 3}).requires_grad_();
  const at::Tensor b = at::ones({1, 3}).requires_grad_();
  const auto events = observe(*fork, [&] {
    const auto [first, rest] = fork->forward(a, b);
    (first.sum() + rest[0].sum() + rest[1].sum()).backward();
  });
  EXPECT_EQ(events, (std::vector<std::string>{"forward ", "end forward ", "backward ", "end backward "}));
  EXPECT_TRUE(a.grad().defined());
  EXPECT_TRUE(b.grad().defined());
}

TEST(Unit, CalledTwiceIsEnteredAndLeftTwice) {
  Unit<torch::nn::Linear> twice(3, 3);
  const at::Tensor input = at::ones({1, 3}).requires_grad_();
  const auto events = observe(*twice, [&] { twice(twice(input)).sum().backward(); });
  EXPECT_EQ(events.size(), 8U);
  EXPECT_EQ(std::count(events.begin(), events.end(), "end backward "), 2);
}

TEST(Unit, WithoutGradientsOnlyTheForwardPassIsSeen) {
  Outer model;
  const at::NoGradGuard no_grad;
  EXPECT_EQ(observe(*model, [&] { model(at::ones({2, 3})); }).size(), 4U);
}

TEST(Unit, WorksInsideSequential) {
  torch::nn::Sequential layers(Unit<torch::nn::Linear>(3, 4), Unit<torch::nn::Linear>(4, 2));
  const auto events = observe(*layers, [&] { layers->forward(at::ones({2, 3})).sum().backward(); });
  EXPECT_EQ(events.size(), 8U);
  EXPECT_EQ(layers->named_parameters().keys().front(), "0.weight");
}

TEST(Wrap, NeedsARule) {
  torch::nn::Sequential model(torch::nn::Linear(3, 4));
  EXPECT_THROW(wrap_units(*model, WrapRule()), UsageError);
  EXPECT_THROW(wrap_units(*model, NamedWrapRule()), UsageError);
}

TEST(Wrap, MakesUnitsOfTheLayersOfASequential) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::ReLU(),
                              torch::nn::Linear(4, 2));
  const at::Tensor input = at::randn({5, 3});
  model->eval();
  const at::Tensor expected = model->forward(input);
  const std::vector<std::string> names = model->named_parameters().keys();

  EXPECT_EQ(wrap_units(*model, wrap_types<torch::nn::LinearImpl>()), 2);
  EXPECT_EQ(wrap_units(*model, wrap_all()), 1);  // existing units stay
  EXPECT_EQ(model->named_parameters().keys(), names);
  EXPECT_TRUE(at::equal(model->forward(input), expected));
  EXPECT_EQ(partition_into_units(*model).size(), 3U);
  const auto events = observe(*model, [&] { model->forward(input).sum().backward(); });
  EXPECT_EQ(events.size(), 12U);
  model->train();
  EXPECT_FALSE(at::allclose(model->forward(input), expected));  // batch statistics
}

TEST(Wrap, BySize) {
  torch::nn::Sequential model(torch::nn::Linear(3, 4), torch::nn::Linear(100, 100));
  EXPECT_EQ(wrap_units(*model, wrap_from(KiB(8))), 1);
  EXPECT_EQ(partition_into_units(*model).size(), 2U);
}

TEST(Partition, InnermostUnitOwnsAParameter) {
  Outer model;
  const std::vector<ModelUnit> units = partition_into_units(*model);
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].name, kRootUnit);
  EXPECT_EQ(units[0].parameters.front().name, "head.weight");
  EXPECT_EQ(units[1].name, "first");
  EXPECT_EQ(units[2].parameters.front().name, "second.linear.weight");
}

TEST(Partition, SharedParametersBelongToTheCommonParent) {
  Outer model;
  model->second->linear->weight = model->second->linear->register_parameter("tied", model->first->weight);
  const std::vector<ModelUnit> units = partition_into_units(*model);
  ASSERT_EQ(units[0].name, kRootUnit);
  const auto in_root = [&](const std::string& name) {
    return std::any_of(units[0].parameters.begin(), units[0].parameters.end(),
                       [&](const ModelTensor& parameter) { return parameter.name == name; });
  };
  EXPECT_TRUE(in_root("first.weight"));
  EXPECT_FALSE(in_root("first.bias"));
}

// A module that libtorch can clone and that contains a unit.
struct CloneableInsideImpl : torch::nn::Cloneable<CloneableInsideImpl> {
  CloneableInsideImpl() { reset(); }
  void reset() override { linear = register_module("linear", Unit<torch::nn::Linear>(3, 3)); }
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(linear(x)); }
  Unit<torch::nn::Linear> linear{nullptr};
};
TORCH_MODULE(CloneableInside);

TEST(Unit, CloneIsAUnitWithOwnTensors) {
  Unit<CloneableInside> unit;
  unit->unit_state().set_checkpointed(true);
  const auto copy = std::dynamic_pointer_cast<Unit<CloneableInside>::Impl>(unit->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(copy->unit_state().checkpointed());
  EXPECT_EQ(units_of(*copy).size(), 2) << "the unit inside is one as well";
  const at::Tensor input = torch::ones({2, 3});
  EXPECT_TRUE(at::equal(copy->forward(input), unit->forward(input)));
  {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : unit->parameters()) at::Tensor(parameter).zero_();
  }
  EXPECT_TRUE(at::equal(unit->forward(input), torch::zeros({2, 3})));
  EXPECT_FALSE(at::equal(copy->forward(input), torch::zeros({2, 3})));
  copy->forward(input).sum().backward();
  EXPECT_TRUE(copy->parameters().front().grad().defined());
  EXPECT_FALSE(unit->parameters().front().grad().defined());
}

TEST(Unit, CloneOfASequentialKeepsItsUnits) {
  torch::nn::Sequential model(Unit<torch::nn::Linear>(3, 3), torch::nn::Tanh(),
                              Unit<torch::nn::Linear>(3, 1));
  const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(units_of(*copy).size(), 2);
  const at::Tensor input = torch::ones({2, 3});
  EXPECT_TRUE(at::equal(copy->forward(input), model->forward(input)));
}

}  // namespace
}  // namespace rondo::unit_test
