// Master weights under meshes (stages, parts of layers, experts), with a scaler, clipping and checkpoints.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <mutex>

#include "rondo/base/error.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::mesh_precision_test {
namespace {

using ::rondo::testing::expect_facts;
using ::rondo::testing::message_of;
using ::rondo::testing::Recorder;
using ::rondo::testing::Rows;
using ::rondo::testing::run_ranks;

constexpr std::int64_t kSamples = 48, kJointBatch = 16;
constexpr PrecisionOptions kBFloat16{.level = OptLevel::O2, .dtype = at::kBFloat16};
// The initial scale is too large: steps are skipped until it fits.
constexpr PrecisionOptions kHalf{
    .level = OptLevel::O2, .dtype = at::kHalf, .loss_scale = LossScale{.dynamic = true, .value = 1 << 24}};

struct Way {
  Mesh mesh = {};  // empty: one process
  std::string strategy = "ddp";
  PrecisionOptions precision = kBFloat16;
  std::int64_t accumulate = 1;
  double clip_norm = 0;
  std::string schedule = "1f1b";
  std::int64_t experts = 0;
};

struct Outcome {
  std::vector<StepRecord> steps;
  NamedTensors weights;  // full, as in the checkpoint
  std::vector<at::ScalarType> optimized, computed;
};

Model float_gpt(std::int64_t experts) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  return make_model("gpt", {{"vocabulary", 12},
                            {"context", 8},
                            {"layers", 3},
                            {"heads", 2},
                            {"width", 16},
                            {"experts", experts},
                            {"capacity_factor", 0.0}});
}

std::unique_ptr<Strategy> strategy_of(const Way& way, const Context& context) {
  const StrategyRegistry strategies = all_strategies();
  if (way.mesh.empty()) return strategies.make("one_device", context);
  return strategy_on_mesh(strategies, way.strategy, context.mesh(way.mesh),
                          [&](const std::string& name) -> OptionValues {
                            if (name != "pipeline") return {};
                            return {{"micro-batches", "4"}, {"pipeline-schedule", way.schedule}};
                          });
}

// Trains up to `steps` in total, from the checkpoint in `from` if there is one; saves to `to`.
Outcome train(const Way& way, std::int64_t steps, const std::filesystem::path& from,
              const std::filesystem::path& to) {
  Outcome outcome;
  int ranks = 1;
  for (const MeshDimension& dimension : way.mesh) ranks *= dimension.size;
  const at::Tensor drawn = at::randint(12, {kSamples, 9}, at::detail::createCPUGenerator(5), at::kLong);
  const auto data =
      std::make_shared<Rows>(drawn.narrow(1, 0, 8).contiguous(), drawn.narrow(1, 1, 8).contiguous(), 12);
  run_ranks(ranks, "native", [&](Context& context) {
    const auto strategy = strategy_of(way, context);
    const Model model = float_gpt(way.experts);
    Trainer trainer(*strategy, model, c10::kCPU, way.precision);
    trainer.compile(::rondo::testing::adamw(1e-2));
    if (!from.empty()) trainer.restore(from);
    const auto recorder = std::make_shared<Recorder>();
    trainer.fit(data, {.steps = steps,
                       .batch_size = kJointBatch / strategy->num_replicas_in_sync() / way.accumulate,
                       .accumulate = way.accumulate,
                       .seed = 4,
                       .clip_norm = way.clip_norm,
                       .callbacks = {recorder}});
    trainer.save(to, {.keep = 1});
    if (context.rank() == 0) {
      outcome.steps = recorder->steps_;
      for (const at::Tensor& each : trainer.optimizer().param_groups().front().params())
        outcome.optimized.push_back(each.scalar_type());
      for (const at::Tensor& each : model.module->parameters()) {
        if (each.numel() > 0) outcome.computed.push_back(each.scalar_type());
      }
    }
    barrier(context.world());
  });
  for (const NamedTensor& tensor : read_weights(to))
    outcome.weights.push_back({tensor.name, tensor.tensor.clone()});
  return outcome;
}

Outcome train(const Way& way, std::int64_t steps) {
  const TemporaryDirectory directory;
  return train(way, steps, {}, directory.path());
}

void expect_masters(const Outcome& outcome, at::ScalarType dtype, const std::string& what) {
  for (const at::ScalarType each : outcome.optimized) EXPECT_EQ(each, at::kFloat) << what;
  for (const at::ScalarType each : outcome.computed) EXPECT_EQ(each, dtype) << what;
  for (const NamedTensor& each : outcome.weights)
    EXPECT_EQ(each.tensor.scalar_type(), at::kFloat) << what << each.name;
}

void expect_same_bits(const Outcome& one, const Outcome& other, const std::string& what) {
  ASSERT_EQ(one.weights.size(), other.weights.size()) << what;
  for (std::size_t i = 0; i < one.weights.size(); ++i)
    EXPECT_TRUE(at::equal(one.weights[i].tensor, other.weights[i].tensor)) << what << one.weights[i].name;
}

// As without master weights: the same micro-batches, summed in the same order and dtype.
TEST(MeshPrecision, StagesEqualAccumulationWithMasterWeights) {
  for (const PrecisionOptions& precision : {kBFloat16, kHalf}) {
    const Outcome alone = train({.precision = precision, .accumulate = 4}, 12);
    for (const std::string schedule : {"1f1b", "zb_v"}) {
      const Outcome staged =
          train({.mesh = {{"pipeline", 2}}, .precision = precision, .schedule = schedule}, 12);
      expect_masters(staged, precision.dtype, schedule);
      expect_same_bits(alone, staged, schedule);
      ASSERT_EQ(alone.steps.size(), staged.steps.size());
      for (std::size_t i = 0; i < alone.steps.size(); ++i) {
        EXPECT_EQ(alone.steps[i].loss, staged.steps[i].loss) << schedule << i;
        EXPECT_EQ(alone.steps[i].loss_scale, staged.steps[i].loss_scale) << schedule << i;
      }
    }
    if (precision.dtype != at::kHalf) continue;
    EXPECT_EQ(*alone.steps[1].loss_scale, *alone.steps[0].loss_scale / 2) << "the first step was skipped";
    EXPECT_EQ(*alone.steps[11].loss_scale, *alone.steps[10].loss_scale) << "a later one was not";
  }
}

TEST(MeshPrecision, NormsOfMastersAreThoseOfAllStages) {
  const Outcome alone = train({.precision = kHalf, .accumulate = 4, .clip_norm = 0.05}, 12);
  const Outcome staged = train({.mesh = {{"pipeline", 2}}, .precision = kHalf, .clip_norm = 0.05}, 12);
  ASSERT_EQ(alone.steps.size(), staged.steps.size());
  EXPECT_TRUE(alone.steps.back().gradient_norm);
  for (std::size_t i = 0; i < alone.steps.size(); ++i) {
    ASSERT_EQ(alone.steps[i].gradient_norm.has_value(), staged.steps[i].gradient_norm.has_value()) << i;
    // After a clipped step values differ by a rounding of the factor.
    if (alone.steps[i].gradient_norm) {
      EXPECT_NEAR(*staged.steps[i].gradient_norm / *alone.steps[i].gradient_norm, 1, 5e-3) << i;
    }
    EXPECT_NEAR(alone.steps[i].loss, staged.steps[i].loss, 5e-3) << i;
  }
}

std::vector<Way> ways_with_masters() {
  return {{.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "ddp"},
          {.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "zero1"},
          {.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "zero3", .schedule = "zb_h1"},
          {.mesh = {{"pipeline", 2}, {"tensor", 2}}},
          {.mesh = {{"pipeline", 2}, {"context", 2}}},
          {.mesh = {{"pipeline", 2}, {"expert", 2}}, .experts = 4},
          {.mesh = {{"tensor", 2}}},
          {.mesh = {{"data", 2}, {"tensor", 2}}, .strategy = "zero2"},
          {.mesh = {{"data", 2}, {"expert", 2}}, .experts = 4},
          {.mesh = {{"context", 2}, {"expert", 2}}, .experts = 4}};
}

// Sums in other orders are rounded differently, to 8 bits.
TEST(MeshPrecision, EveryMeshLearnsWhatOneProcessDoes) {
  std::map<std::int64_t, Outcome> alone_by_experts;
  for (Way way : ways_with_masters()) {
    way.clip_norm = 1;
    const Outcome outcome = train(way, 20);
    const std::string what = to_string(way.mesh) + " " + way.strategy + " ";
    expect_masters(outcome, at::kBFloat16, what);
    way.mesh.clear();
    const auto known = alone_by_experts.find(way.experts);
    const Outcome& alone = known != alone_by_experts.end()
                               ? known->second
                               : alone_by_experts.emplace(way.experts, train(way, 20)).first->second;
    EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss - 0.1) << what;
    for (std::size_t i = 0; i < alone.steps.size(); ++i) {
      // Rounding may send a token to another expert.
      const double tolerance = way.experts > 0 && i >= 5 ? 0.1 : 0.03;
      EXPECT_NEAR(outcome.steps[i].loss, alone.steps[i].loss, tolerance) << what << i;
      // Later the weights have diverged.
      if (i < 5) {
        EXPECT_NEAR(*outcome.steps[i].gradient_norm / *alone.steps[i].gradient_norm, 1, 0.05) << what << i;
      }
    }
  }
}

// The float32 weights move to their new places bit-identically, with the optimizer's state.
TEST(MeshPrecision, MasterWeightsGoOnUnderOtherMeshes) {
  for (const std::int64_t experts : {0, 4}) {
    const TemporaryDirectory first;
    const Way from{.mesh = {{"pipeline", 2}, {"data", experts > 0 ? 1 : 2}, {"expert", experts > 0 ? 2 : 1}},
                   .strategy = experts > 0 ? "ddp" : "zero1",
                   .experts = experts};
    const Outcome saved = train(from, 3, {}, first.path());
    std::vector<Way> ways = ways_with_masters();
    ways.push_back({.experts = experts});
    std::vector<double> losses;
    for (const Way& way : ways) {
      if (way.experts != experts) continue;
      const std::string what = to_string(way.mesh) + " " + way.strategy + " ";
      const TemporaryDirectory unchanged, further;
      expect_same_bits(saved, train(way, 3, first.path(), unchanged.path()), what);
      losses.push_back(train(way, 6, unchanged.path(), further.path()).steps.back().loss);
    }
    for (const double loss : losses) EXPECT_NEAR(loss, losses.back(), 0.02);
  }
}

TEST(MeshPrecision, RefusesBatchNormalisationAboveShardingStrategies) {
  const std::string message = message_of<UsageError>([] {
    run_ranks(4, "native", [](Context& context) {
      const auto strategy =
          strategy_of({.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "zero1"}, context);
      static std::mutex mutex;  // the default generator is shared
      const Model model = [] {
        const std::lock_guard lock(mutex);
        return make_model("convnet", {{"input_shape", {1, 8, 8}},
                                      {"features", {4}},
                                      {"hidden", 8},
                                      {"classes", 2},
                                      {"batch_norm", true}});
      }();
      const Trainer trainer(*strategy, model, c10::kCPU, kBFloat16);
    });
  });
  expect_facts(message, {"zero1", "batch normalisation", "keep-batchnorm-fp32"});
}

}  // namespace
}  // namespace rondo::mesh_precision_test
