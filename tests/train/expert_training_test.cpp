// Compares a gpt with experts on any mesh with one process: losses, weights, norms, figures, also across
// checkpoints.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <mutex>

#include "rondo/base/error.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/memory/tracker.h"
#include "rondo/parallel/experts/expert_options.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::expert_training_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::Recorder;
using testing::Rows;
using testing::run_ranks;

constexpr std::int64_t kGlobalBatch = 8;
// The last batch of an epoch has three samples: ranks have unequal numbers of them, possibly none.
constexpr std::int64_t kSamples = 27;

struct Way {
  Mesh mesh = {};  // empty: one process
  std::int64_t per_token = 1;
  double capacity_factor = 0;
  std::int64_t accumulate = 1;
  double clip_norm = 0;
  bool limited = false;  // whether ranks evaluate together
  std::string engine = "native";
  std::int64_t micro_batches = 1;
  double balance_loss = 0.1;
  std::string schedule = "1f1b";
  std::int64_t length = 6;  // length of a sample
  std::string strategy = "ddp";
};

int ranks_of(const Mesh& mesh) {
  int ranks = 1;
  for (const MeshDimension& dimension : mesh) ranks *= dimension.size;
  return ranks;
}

struct Outcome {
  std::vector<StepRecord> steps;
  std::vector<StepFigures> figures;  // figures of each step, over all ranks
  std::map<std::string, double> evaluated;
  NamedTensors parameters;  // full, as in the checkpoint
};

std::shared_ptr<const Dataset> tokens(std::int64_t length) {
  const at::Tensor drawn =
      at::randint(12, {kSamples, length + 1}, at::detail::createCPUGenerator(5), at::kLong);
  return std::make_shared<Rows>(drawn.narrow(1, 0, length).contiguous(),
                                drawn.narrow(1, 1, length).contiguous(), 12);
}

Model gpt_with_experts(const Way& way) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  Model model = make_model("gpt", {{"vocabulary", 12},
                                   {"context", way.length},
                                   {"layers", 2},
                                   {"heads", 2},
                                   {"width", 8},
                                   {"dropout", 0.2},
                                   {"experts", 4},
                                   {"experts_per_token", way.per_token},
                                   {"capacity_factor", way.capacity_factor},
                                   {"balance_loss", way.balance_loss}});
  model.module->to(at::kDouble);
  return model;
}

// Trains as a run of its own: `steps` in total, from a checkpoint in `root` if there is one, and saves to
// `root`.
Outcome train(const Way& way, std::int64_t steps, const std::filesystem::path& root = {}) {
  Outcome outcome;
  const TemporaryDirectory own;
  const int ranks = ranks_of(way.mesh);
  run_ranks(ranks, way.engine, [&](Context& world) {
    const Context context = way.mesh.empty() ? world : world.mesh(way.mesh);
    const StrategyRegistry strategies = all_strategies();
    const auto strategy =
        way.mesh.empty() ? strategies.make("one_device", context)
                         : strategy_on_mesh(strategies, way.strategy, context,
                                            [&](const std::string& name) -> OptionValues {
                                              if (name != "pipeline") return {};
                                              return {{"micro-batches", std::to_string(way.micro_batches)},
                                                      {"pipeline-schedule", way.schedule}};
                                            });
    Trainer trainer(*strategy, gpt_with_experts(way));
    trainer.compile(testing::adamw(1e-2));
    if (!root.empty() && std::filesystem::exists(root)) trainer.restore(root);
    auto recorder = std::make_shared<Recorder>();
    trainer.fit(tokens(way.length),
                {.steps = steps,
                 .batch_size = kGlobalBatch / strategy->num_replicas_in_sync() / way.accumulate,
                 .accumulate = way.accumulate,
                 .seed = 4,
                 .clip_norm = way.clip_norm,
                 .callbacks = {recorder}});
    // With in_parts each rank writes its own experts.
    if (!root.empty()) trainer.save(root, {.keep = 1, .in_parts = steps % 2 == 1});
    if (way.limited && world.rank() == 0) replica_memory_tracker().set_limit(Bytes{std::uint64_t{1} << 40});
    const auto evaluated = trainer.evaluate(*tokens(way.length));
    if (way.limited && world.rank() == 0) replica_memory_tracker().set_limit({});
    trainer.evaluate(*tokens(way.length));  // gathers parameters before the checkpoint
    trainer.save(own.path(), /*keep=*/1);
    {
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      outcome.figures.resize(recorder->steps_.size());
      for (std::size_t i = 0; i < recorder->steps_.size(); ++i) {
        for (const auto& [name, figure] : recorder->steps_[i].figures) outcome.figures[i][name] += figure;
      }
    }
    if (world.rank() == ranks - 1) {
      outcome.steps = recorder->steps_;
      outcome.evaluated = evaluated;
    }
    barrier(world.world());
  });
  for (const NamedTensor& tensor : read_weights(own.path()))
    outcome.parameters.push_back({tensor.name, tensor.tensor.clone()});
  return outcome;
}

std::string describe(const Way& way) {
  return to_string(way.mesh) + ", " + std::to_string(way.per_token) + " a token, capacity factor " +
         std::to_string(way.capacity_factor);
}

void expect_equal(const Outcome& one, const Outcome& other, const Way& way) {
  ASSERT_EQ(one.steps.size(), other.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_NEAR(one.steps[i].loss, other.steps[i].loss, 1e-9) << describe(way) << ", step " << i + 1;
    EXPECT_NEAR(one.steps[i].gradient_norm.value_or(0), other.steps[i].gradient_norm.value_or(0), 1e-9)
        << describe(way) << ", step " << i + 1;
  }
  EXPECT_NEAR(one.evaluated.at("loss"), other.evaluated.at("loss"), 1e-9) << describe(way);
  for (std::size_t i = 0; i < one.figures.size(); ++i) {
    for (const std::string name : {"routed_tokens", "dropped_tokens"})
      EXPECT_EQ(one.figures[i].at(name).value(), other.figures[i].at(name).value()) << describe(way) << name;
    EXPECT_NEAR(one.figures[i].at("balance_loss").value(), other.figures[i].at("balance_loss").value(), 1e-9)
        << describe(way) << ", step " << i + 1;
  }
  ASSERT_EQ(one.parameters.size(), other.parameters.size());
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    ASSERT_EQ(one.parameters[i].name, other.parameters[i].name);
    const at::Tensor &a = one.parameters[i].tensor, &b = other.parameters[i].tensor;
    ASSERT_EQ(a.sizes(), b.sizes()) << one.parameters[i].name;
    EXPECT_LT((a - b).abs().max().item<double>(), 1e-8) << describe(way) << ", " << one.parameters[i].name;
  }
}

void expect_equal_to_one_process(Way way) {
  constexpr std::int64_t kSteps = 8;  // two epochs
  const Outcome other = train(way, kSteps);
  way.mesh.clear();
  way.limited = false;
  way.engine = "native";
  expect_equal(train(way, kSteps), other, way);
}

TEST(ExpertTraining, OverTwoRanksIsThatOfOneProcess) {
  expect_equal_to_one_process({.mesh = {{"expert", 2}}});
  expect_equal_to_one_process({.mesh = {{"expert", 2}}, .per_token = 2, .clip_norm = 0.05});
  // Capacity is counted for each sample, so the dropped tokens are the same too.
  expect_equal_to_one_process({.mesh = {{"expert", 2}}, .per_token = 2, .capacity_factor = 0.75});
  expect_equal_to_one_process({.mesh = {{"expert", 2}}, .accumulate = 2, .limited = true});
}

TEST(ExpertTraining, OverDataAndExpertsEqualsOneProcess) {
  expect_equal_to_one_process({.mesh = {{"data", 2}, {"expert", 2}}, .per_token = 2, .clip_norm = 0.05});
  expect_equal_to_one_process({.mesh = {{"data", 2}, {"expert", 2}}, .capacity_factor = 1});
  expect_equal_to_one_process({.mesh = {{"expert", 4}}, .per_token = 2, .engine = "gloo"});
}

TEST(ExpertTraining, InPipelineStagesEqualsOneProcess) {
  const Mesh mesh = {{"pipeline", 2}, {"expert", 2}};
  expect_equal_to_one_process({.mesh = mesh, .per_token = 2, .capacity_factor = 1, .clip_norm = 0.05});
  // Each micro-batch is balanced on its own.
  expect_equal_to_one_process({.mesh = mesh, .capacity_factor = 1, .micro_batches = 2, .balance_loss = 0});
  expect_equal_to_one_process({.mesh = {{"pipeline", 2}, {"data", 2}, {"expert", 2}},
                               .clip_norm = 0.05,
                               .micro_batches = 2,
                               .balance_loss = 0,
                               .schedule = "zb_h1"});
}

TEST(ExpertTraining, MicroBatchesAreBalancedAsAccumulatedOnesAre) {
  const Way accumulated{.per_token = 2, .accumulate = 2};
  Way way = accumulated;
  way.mesh = {{"pipeline", 2}};
  way.accumulate = 1;
  way.micro_batches = 2;
  expect_equal(train(accumulated, 3), train(way, 3), way);
}

TEST(ExpertTraining, OfTensorDividedExpertsEqualsOneProcess) {
  expect_equal_to_one_process({.mesh = {{"tensor", 2}}, .per_token = 2, .clip_norm = 0.05});
  expect_equal_to_one_process(
      {.mesh = {{"expert", 2}, {"tensor", 2}}, .capacity_factor = 1, .clip_norm = 0.05});
  expect_equal_to_one_process({.mesh = {{"pipeline", 2}, {"expert", 2}, {"tensor", 2}}, .clip_norm = 0.05});
}

// Dropping is decided for whole samples, of which each rank has pieces.
TEST(ExpertTraining, OfDividedSequencesIsThatOfOneProcess) {
  expect_equal_to_one_process(
      {.mesh = {{"context", 2}}, .per_token = 2, .capacity_factor = 0.75, .clip_norm = 0.05, .length = 8});
  expect_equal_to_one_process({.mesh = {{"context", 2}, {"expert", 2}},
                               .per_token = 2,
                               .capacity_factor = 0.75,
                               .clip_norm = 0.05,
                               .length = 8});
  expect_equal_to_one_process({.mesh = {{"context", 2}, {"expert", 2}},
                               .capacity_factor = 1,
                               .accumulate = 2,
                               .limited = true,
                               .engine = "gloo",
                               .length = 8});
  expect_equal_to_one_process(
      {.mesh = {{"context", 2}}, .capacity_factor = 1, .length = 8, .strategy = "expert"});
}

TEST(ExpertTraining, OfDividedSequencesOnLargerMeshes) {
  for (const Mesh& mesh :
       {Mesh{{"pipeline", 2}, {"context", 2}, {"expert", 2}},
        Mesh{{"context", 2}, {"expert", 2}, {"tensor", 2}}, Mesh{{"data", 2}, {"context", 2}, {"expert", 2}}})
    expect_equal_to_one_process(
        {.mesh = mesh, .per_token = 2, .capacity_factor = 1, .clip_norm = 0.05, .length = 8});
}

TEST(ExpertTraining, GoesOnUnderAnotherLayout) {
  const Way one{.per_token = 2, .capacity_factor = 1, .length = 8};
  Outcome whole = train(one, 12);
  whole.steps.erase(whole.steps.begin(), whole.steps.begin() + 10);
  whole.figures.erase(whole.figures.begin(), whole.figures.begin() + 10);
  const TemporaryDirectory directory;
  const auto root = directory.path() / "checkpoints";
  const auto on = [&](const Mesh& mesh, std::int64_t steps) {
    Way way = one;
    way.mesh = mesh;
    return train(way, steps, root);
  };
  on({{"expert", 2}}, 3);
  on({}, 5);
  on({{"data", 2}, {"expert", 2}}, 7);
  on({{"pipeline", 2}, {"expert", 2}}, 8);
  on({{"expert", 2}, {"tensor", 2}}, 9);
  on({{"context", 2}, {"expert", 2}}, 10);
  expect_equal(whole, on({{"expert", 4}}, 12), one);
}

TEST(ExpertTraining, CountsWhatIsDropped) {
  for (const Mesh& mesh : {Mesh{}, Mesh{{"expert", 2}}}) {
    const Outcome outcome = train({.mesh = mesh, .per_token = 2, .capacity_factor = 0.5}, 3);
    const double ranks = ranks_of(mesh);
    for (const StepRecord& step : outcome.steps) {
      // Two layers, two experts for each token, six tokens in a sample.
      EXPECT_EQ(step.figures.at("routed_tokens").value(), 2 * 2 * 6 * kGlobalBatch / ranks);
      // An expert accepts ceil(0.5 * 2 * 6 / 4) = 2 tokens of a sample: four experts at most 8 of 12.
      EXPECT_GE(step.figures.at("dropped_tokens").value(), 2 * 4 * kGlobalBatch / ranks);
      EXPECT_GT(step.figures.at("balance_loss").value(), 0);
    }
  }
}

TEST(ExpertTraining, RefusesIndivisibleExpertsAndModelsWithoutAny) {
  expect_facts(message_of<UsageError>([] { train({.mesh = {{"expert", 3}}}, 1); }), {"4", "3"});
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("expert", context);
    expect_facts(message_of<UsageError>([&] { strategy->prepare(testing::small_model().module); }),
                 {"expert"});
    const auto zero = [&] {
      strategy_on_mesh(all_strategies(), "zero1", context.mesh({{"expert", 2}}),
                       [](const std::string&) { return OptionValues(); });
    };
    expect_facts(message_of<UsageError>(zero), {"zero1", "expert=2"});
  });
}

TEST(ExpertTraining, RefusesAnUnknownCodecOnOneProcessToo) {
  run_ranks(1, "native", [](Context& context) {
    ExpertOptions options;
    options.codec = "zz";
    expect_facts(message_of<UsageError>([&] { all_strategies().make("expert", context, options); }), {"zz"});
  });
}

}  // namespace
}  // namespace rondo::expert_training_test
