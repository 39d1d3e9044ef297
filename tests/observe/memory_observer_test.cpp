#include "rondo/observe/memory_observer.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"

namespace rondo::memory_observer_test {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kBatch = 32;
constexpr std::uint64_t kActivation = kBatch * kWidth * sizeof(float);
constexpr std::uint64_t kParameters = (kWidth * kWidth + kWidth) * sizeof(float);

// Saves the outputs of both layers.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    a = register_module("a", torch::nn::Linear(kWidth, kWidth));
    b = register_module("b", torch::nn::Linear(kWidth, kWidth));
  }
  at::Tensor forward(const at::Tensor& x) { return b(a(x).tanh()).tanh(); }
  torch::nn::Linear a{nullptr}, b{nullptr};
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
  ModelImpl() {
    first = register_module("first", Unit<Block>());
    second = register_module("second", Unit<Block>());
    head = register_module("head", torch::nn::Linear(kWidth, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head(second(first(x))); }
  Unit<Block> first{nullptr}, second{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Model);

class MemoryObserverTest : public ::testing::Test {
 protected:
  MemoryObserverTest() {
    track_cpu_allocations();
    model_ = Model();
    observer_ = std::make_shared<MemoryObserver>(replica_memory_tracker());
    observer_->label_parameters(*model_);
    for (UnitState* unit : units_of(*model_)) unit->attach(observer_);
  }
  ~MemoryObserverTest() override { observer_->leave_phase(); }

  at::Tensor forward() {
    observer_->enter_phase(1, "forward", MemoryCategory::activations);
    return model_(input_).sum();
  }
  void backward(const at::Tensor& loss) {
    observer_->enter_phase(1, "backward", MemoryCategory::temporaries);
    loss.backward();
  }
  // Peak of a whole pass, with what it consisted of.
  MemoryPeak peak_of_a_pass() {
    model_->zero_grad();
    replica_memory_tracker().reset_peak();
    backward(forward());
    observer_->leave_phase();
    return replica_memory_tracker().peak();
  }
  static std::uint64_t of(const std::string& unit, MemoryCategory category) {
    return bytes_of(replica_memory_tracker().usage().of_unit(unit), category);
  }

  Model model_{nullptr};
  std::shared_ptr<MemoryObserver> observer_;
  at::Tensor input_ = at::ones({kBatch, kWidth});
};

TEST_F(MemoryObserverTest, ParametersBelongToTheirUnits) {
  EXPECT_EQ(of("first", MemoryCategory::parameters), 2 * kParameters);
  EXPECT_EQ(of("second", MemoryCategory::parameters), 2 * kParameters);
  EXPECT_EQ(of("root", MemoryCategory::parameters), (2 * kWidth + 2) * sizeof(float));
  torch::nn::BatchNorm1d norm(kWidth);
  observer_->label_parameters(*norm);
  EXPECT_GE(of("root", MemoryCategory::parameters), (2 * kWidth + 2 + 4 * kWidth) * sizeof(float))
      << "buffers count as parameters";
}

TEST_F(MemoryObserverTest, ForwardLeavesActivationsAndBackwardGradients) {
  const at::Tensor loss = forward();
  // tanh keeps its result, in a linear layer's case the input of the next is the same tensor.
  EXPECT_EQ(of("first", MemoryCategory::activations), 2 * kActivation);
  EXPECT_EQ(of("second", MemoryCategory::activations), 2 * kActivation);
  backward(loss);
  observer_->label_gradients(*model_);
  for (const char* unit : {"first", "second"}) {
    EXPECT_EQ(of(unit, MemoryCategory::activations), 0U);
    EXPECT_EQ(of(unit, MemoryCategory::temporaries), 0U);
    EXPECT_EQ(of(unit, MemoryCategory::gradients), 2 * kParameters);
  }
  EXPECT_EQ(of("root", MemoryCategory::gradients), (2 * kWidth + 2) * sizeof(float));
}

TEST_F(MemoryObserverTest, ACheckpointedUnitKeepsItsInput) {
  checkpoint_activations(*model_, "all");
  const at::Tensor loss = forward();
  // Kept tensors were allocated in the unit before: here the output of each, and the states of the
  // generators.
  for (const char* unit : {"first", "second"}) {
    EXPECT_GE(of(unit, MemoryCategory::activations), kActivation);
    EXPECT_LT(of(unit, MemoryCategory::activations), 2 * kActivation);
  }
  backward(loss);
  // States of the generators, as long as the graph lives.
  EXPECT_LT(of("first", MemoryCategory::activations), kActivation);
}

TEST_F(MemoryObserverTest, CheckpointingLowersThePeakOfADeepModel) {
  torch::nn::Sequential deep;
  for (int i = 0; i < 8; ++i) deep->push_back(Unit<Block>());
  const at::Tensor input = at::ones({512, kWidth});
  const auto peak = [&](std::string_view which) {
    checkpoint_activations(*deep, which);
    deep->zero_grad();
    const std::uint64_t before = replica_memory_tracker().total();
    replica_memory_tracker().reset_peak();
    deep->forward(input).sum().backward();
    return replica_memory_tracker().peak_total() - before;
  };
  const std::uint64_t whole = peak("none");
  const std::uint64_t lower = peak("all");
  // 16 activations against 8 inputs, and 2 of the unit that is computed again.
  EXPECT_LT(lower + 4 * 512 * kWidth * sizeof(float), whole);
}

TEST_F(MemoryObserverTest, ThePeakKnowsItsMoment) {
  const MemoryPeak peak = peak_of_a_pass();
  EXPECT_EQ(peak.step, 1);
  EXPECT_EQ(peak.phase, "backward");
  EXPECT_EQ(peak.unit, "first") << "where most gradients are there and activations still are";
}

TEST_F(MemoryObserverTest, ATracedStepShowsTheMomentsBetweenObservations) {
  backward(forward());
  std::vector<TraceCounter> samples;
  observer_->trace([&](const TraceCounter& sample) { samples.push_back(sample); });
  const MemoryPeak peak = peak_of_a_pass();
  observer_->trace(nullptr);
  ASSERT_GE(samples.size(), 16U);
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].name, "memory");
    ASSERT_EQ(samples[i].values.size(), kMemoryCategories);
    if (i > 0) {
      EXPECT_GE(samples[i].time_ns, samples[i - 1].time_ns);
    }
    std::uint64_t total = 0;
    for (const auto& [name, bytes] : samples[i].values) total += bytes;
    largest = std::max(largest, total);
  }
  EXPECT_EQ(largest, peak.usage.total);
  const std::size_t count = samples.size();
  forward();
  EXPECT_EQ(samples.size(), count) << "not traced any more";
}

TEST_F(MemoryObserverTest, FailedPassLeavesNoLabels) {
  const std::size_t depth = memory_labels().depth();
  observer_->enter_phase(1, "forward", MemoryCategory::activations);
  EXPECT_ANY_THROW(model_(at::ones({1, kWidth + 1})));
  observer_->leave_phase();
  EXPECT_EQ(memory_labels().depth(), depth);
}

}  // namespace
}  // namespace rondo::memory_observer_test
