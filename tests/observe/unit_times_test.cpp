#include "rondo/observe/unit_profiler.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "rondo/base/time.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"

namespace rondo::unit_times_test {
namespace {

struct InnerImpl : torch::nn::Module {
  InnerImpl() { linear = register_module("linear", torch::nn::Linear(64, 64)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x).tanh(); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Inner);

// Works before a unit inside it, and keeps the time of its own.
struct OuterImpl : torch::nn::Module {
  OuterImpl() {
    linear = register_module("linear", torch::nn::Linear(64, 64));
    inner = register_module("inner", Unit<Inner>());
  }
  at::Tensor forward(const at::Tensor& x) {
    const std::int64_t begin = monotonic_ns();
    at::Tensor y = x;
    for (int i = 0; i < 10; ++i) y = linear(y).tanh();
    y = inner(y);
    inside_ns += monotonic_ns() - begin;
    return y;
  }
  torch::nn::Linear linear{nullptr};
  Unit<Inner> inner{nullptr};
  std::int64_t inside_ns = 0;
};
TORCH_MODULE(Outer);

struct ModelImpl : torch::nn::Module {
  ModelImpl() { outer = register_module("outer", Unit<Outer>()); }
  at::Tensor forward(const at::Tensor& x) { return outer(outer(x)); }
  Unit<Outer> outer{nullptr};
};
TORCH_MODULE(Model);

std::map<std::string, UnitTimes::Times> times_of(Model& model, int steps) {
  const auto spans = std::make_shared<UnitSpans>();
  for (UnitState* unit : units_of(*model)) unit->attach(spans);
  UnitTimes times;
  for (int i = 0; i < steps; ++i) {
    model(torch::ones({32, 64}, torch::requires_grad())).sum().backward();
    times.add_step(spans->take());
  }
  for (UnitState* unit : units_of(*model)) unit->detach(spans);
  return times.times();
}

TEST(UnitTimes, IncludeWorkBeforeANestedUnit) {
  Model model;
  const auto times = times_of(model, 1);
  ASSERT_EQ(times.size(), 2U);
  const double outer = times.at("outer").forward_s.front();
  EXPECT_GE(outer, static_cast<double>(model->outer->inside_ns) * 1e-9);
  EXPECT_GT(outer, times.at("outer.inner").forward_s.front());
  EXPECT_GT(times.at("outer").backward_s.front(), times.at("outer.inner").backward_s.front());
}

TEST(UnitTimes, HaveOneEntryForEachStep) {
  Model model;
  const auto times = times_of(model, 3);
  for (const char* unit : {"outer", "outer.inner"}) {
    EXPECT_EQ(times.at(unit).forward_s.size(), 3U) << unit;
    EXPECT_EQ(times.at(unit).backward_s.size(), 3U) << unit;
  }
}

// The second forward of a checkpointed unit, and of those inside it, is part of backward.
TEST(UnitTimes, CountASecondForwardAsBackward) {
  Model model;
  checkpoint_activations(*model, "outer");
  const auto spans = std::make_shared<UnitSpans>();
  for (UnitState* unit : units_of(*model)) unit->attach(spans);
  model(torch::ones({32, 64}, torch::requires_grad())).sum().backward();
  std::map<std::string, int> passes;
  for (const TraceSpan& span : spans->take()) ++passes[span.name + " " + span.unit];
  for (UnitState* unit : units_of(*model)) unit->detach(spans);
  EXPECT_EQ(passes, (std::map<std::string, int>{{"forward outer", 2},
                                                {"forward outer.inner", 2},
                                                {"recompute outer", 2},
                                                {"recompute outer.inner", 2},
                                                {"backward outer", 2},
                                                {"backward outer.inner", 2}}));
}

}  // namespace
}  // namespace rondo::unit_times_test
