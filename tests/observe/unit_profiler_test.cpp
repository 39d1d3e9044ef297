#include "rondo/observe/unit_profiler.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/memory_observer.h"

namespace rondo::unit_profiler_test {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kBatch = 32;
constexpr std::uint64_t kActivation = kBatch * kWidth * sizeof(float);
constexpr std::uint64_t kParameters = (kWidth * kWidth + kWidth) * sizeof(float);

struct BlockImpl : torch::nn::Module {
  BlockImpl() { linear = register_module("linear", torch::nn::Linear(kWidth, kWidth)); }
  at::Tensor forward(const at::Tensor& x) { return linear(x.tanh()).tanh(); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Block);

std::map<std::string, UnitFigures> profile(torch::nn::Sequential& model, int passes) {
  const auto memory = std::make_shared<MemoryObserver>(replica_memory_tracker());
  memory->label_parameters(*model);
  const auto profiler = std::make_shared<UnitProfiler>(
      replica_memory_tracker(), std::map<std::string, std::uint64_t>{{"0", kParameters}, {"1", kParameters}});
  for (UnitState* unit : units_of(*model)) {
    unit->attach(memory);
    unit->attach(profiler);
  }
  const at::Tensor input = torch::ones({kBatch, kWidth}, torch::requires_grad());
  for (int i = 0; i < passes; ++i) {
    model->zero_grad();
    memory->enter_phase(1, "forward", MemoryCategory::activations);
    profiler->begin_forward();
    const at::Tensor loss = model->forward(input).square().sum();
    memory->enter_phase(1, "backward", MemoryCategory::temporaries);
    profiler->begin_backward();
    loss.backward();
    profiler->end();
    memory->leave_phase();
  }
  for (UnitState* unit : units_of(*model)) {
    unit->detach(memory);
    unit->detach(profiler);
  }
  return profiler->figures();
}

TEST(UnitProfiler, MeasuresTimesAndBytesOfUnits) {
  track_cpu_allocations();
  torch::nn::Sequential model;
  for (int i = 0; i < 2; ++i) model->push_back(Unit<Block>());
  const auto whole = profile(model, 3);
  ASSERT_EQ(whole.size(), 3U);
  for (const char* unit : {"0", "1", kRootUnit}) {
    const UnitFigures& figures = whole.at(unit);
    EXPECT_EQ(figures.forward_s.size(), 3U);
    for (const double seconds : figures.forward_s) EXPECT_GT(seconds, 0);
    for (const double seconds : figures.backward_s) EXPECT_GT(seconds, 0);
    for (const double seconds : figures.recompute_s) EXPECT_EQ(seconds, 0);
  }
  // Both results of tanh, of which the last is the unit's output; the linear layer's own dies inside.
  EXPECT_EQ(whole.at("0").activation_bytes, 2 * kActivation);
  EXPECT_EQ(whole.at("1").activation_bytes, 2 * kActivation);
  EXPECT_EQ(whole.at("0").forward_workspace_bytes, kActivation);
  // Memory between the last unit and the first backward, the loss, is workspace of that unit and
  // not the root's activations. The gradient of the last output stays.
  EXPECT_GE(whole.at("1").forward_workspace_bytes, kActivation);
  EXPECT_LE(whole.at(kRootUnit).activation_bytes, kActivation + 64);
  // Backward begins with a gradient of the output. Each step makes one more gradient of an activation before
  // the one that it came from dies, and the linear layer's weights have theirs while the activation that they
  // came from is still there: never all of both at once.
  EXPECT_GE(whole.at("1").backward_workspace_bytes, -static_cast<std::int64_t>(kParameters));
  EXPECT_LE(whole.at("1").backward_workspace_bytes, static_cast<std::int64_t>(2 * kActivation));

  checkpoint_activations(*model, "all");
  const auto checkpointed = profile(model, 2);
  // Its output, the next unit's input, and where the generators stood.
  EXPECT_GE(checkpointed.at("0").activation_bytes, kActivation);
  EXPECT_LT(checkpointed.at("0").activation_bytes, 2 * kActivation);
  for (const double seconds : checkpointed.at("1").recompute_s) EXPECT_GT(seconds, 0);
  for (const double seconds : checkpointed.at("1").backward_s) EXPECT_GT(seconds, 0);
  EXPECT_GE(checkpointed.at("1").backward_workspace_bytes,
            whole.at("1").backward_workspace_bytes + static_cast<std::int64_t>(kActivation))
      << "what is computed again is in backward now";
}

}  // namespace
}  // namespace rondo::unit_profiler_test
