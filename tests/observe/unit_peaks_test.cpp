#include "rondo/observe/unit_profiler.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"

namespace rondo::unit_peaks_test {
namespace {

constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kWidth = 32;
constexpr std::uint64_t kActivation = kBatch * kWidth * sizeof(float);

struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.tanh(); }
};
TORCH_MODULE(Block);

TEST(UnitPeaks, AreTakenWhileEachUnitComputes) {
  track_cpu_allocations();
  torch::nn::Sequential model;
  for (int i = 0; i < 3; ++i) model->push_back(Unit<Block>());
  const auto peaks = std::make_shared<UnitPeaks>(replica_memory_tracker());
  for (UnitState* unit : units_of(*model)) unit->attach(peaks);
  const at::Tensor input = torch::ones({kBatch, kWidth}, torch::requires_grad());
  const std::uint64_t before = replica_memory_tracker().total();
  at::Tensor output = model->forward(input);
  // Each output stays for the backward pass.
  EXPECT_EQ(peaks->bytes().at("0"), before + kActivation);
  EXPECT_EQ(peaks->bytes().at("2"), before + 3 * kActivation);
  { const at::Tensor outside = at::empty({100 * kBatch, kWidth}); }
  output.sum().backward();
  // The gradient that comes in may be an expanded number; the one that goes out is there besides all outputs.
  EXPECT_GE(peaks->bytes().at("2"), before + 4 * kActivation);
  EXPECT_LE(peaks->bytes().at("2"), before + 6 * kActivation) << "what is outside of units is no unit's";
  // In backward the outputs of those behind are gone, and the gradient of the input stays.
  EXPECT_LE(peaks->bytes().at("0"), peaks->bytes().at("2"));
  for (UnitState* unit : units_of(*model)) unit->detach(peaks);
}

}  // namespace
}  // namespace rondo::unit_peaks_test
