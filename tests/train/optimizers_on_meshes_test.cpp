// Compares every optimizer rule, and the average of weights, under every strategy and mesh with one process.
// By default a strategy or mesh has one rule that updates elements independently and one that uses norms;
// RONDO_EQUALITY=all (`make equality`) runs every rule under all.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "rondo/backend/collectives.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/weight_average.h"
#include "tests/all_combinations.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::optimizers_on_meshes_test {
namespace {

using testing::Recorder;
using testing::Rows;
using testing::run_ranks;

constexpr std::int64_t kJointBatch = 8;
// Tolerance in float64 for sums in another order after so few steps.
constexpr double kRounding = 1e-9;

// A plan with units under different kinds of sharding.
constexpr const char* kPlan = R"({"units": [{"name": "root", "strategy": "ddp"},
                                            {"name": "transformer.h.0", "strategy": "zero3"},
                                            {"name": "transformer.h.1", "strategy": "zero1"}]})";

struct Way {
  Mesh mesh = {};  // empty: only `strategy`
  std::string strategy = "one_device";
  int ranks = 1;  // used without a mesh
  OptionValues options = {};
  std::int64_t experts = 0;
  PrecisionOptions precision = {};
};

std::string describe(const Way& way) {
  std::string text = way.mesh.empty() ? std::to_string(way.ranks) + " ranks" : to_string(way.mesh);
  text += " " + way.strategy + (way.experts > 0 ? " with experts" : "");
  return text + (way.precision.level == OptLevel::O2 ? " O2" : "");
}

int ranks_of(const Way& way) {
  int ranks = way.mesh.empty() ? way.ranks : 1;
  for (const MeshDimension& dimension : way.mesh) ranks *= dimension.size;
  return ranks;
}

// Returns strategies in which a process has a whole model, or whole units.
std::vector<Way> strategies() {
  return {{.strategy = "ddp", .ranks = 2},
          {.strategy = "zero1", .ranks = 2},
          {.strategy = "zero2", .ranks = 2},
          {.strategy = "zero3", .ranks = 4},
          {.strategy = "zero3_keep", .ranks = 2},
          {.strategy = "random", .ranks = 2},
          {.strategy = "planned", .ranks = 2},
          {.strategy = "hsdp", .ranks = 4, .options = {{"shard-ranks", "2"}}},
          {.strategy = "tpu", .ranks = 4},
          {.strategy = "data_parallel", .options = {{"replicas", "2"}}},
          {.strategy = "mirrored", .options = {{"replicas", "2"}}},
          {.strategy = "central_storage", .options = {{"replicas", "2"}}},
          {.strategy = "multi_worker_mirrored", .ranks = 2, .options = {{"replicas", "2"}}}};
}

// Returns a mesh of each kind, for rules that update each element independently.
std::vector<Way> meshes() {
  return {{.mesh = {{"pipeline", 2}}, .strategy = "ddp"},
          {.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "zero1"},
          {.mesh = {{"tensor", 2}}, .strategy = "ddp"},
          {.mesh = {{"data", 2}, {"tensor", 2}}, .strategy = "zero3"},
          {.mesh = {{"pipeline", 2}, {"tensor", 2}}, .strategy = "ddp"},
          {.mesh = {{"context", 2}}, .strategy = "ddp"},
          {.mesh = {{"expert", 2}}, .strategy = "ddp", .experts = 4},
          {.mesh = {{"data", 2}, {"expert", 2}}, .strategy = "ddp", .experts = 4}};
}

// Returns further meshes, for rules that sum norms along each dimension.
std::vector<Way> more_meshes() {
  const OptionValues sequence = {{"sequence-parallel", "true"}};
  return {{.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "ddp"},
          {.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "zero3"},
          {.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "hsdp"},
          {.mesh = {{"tensor", 4}}, .strategy = "ddp"},
          {.mesh = {{"tensor", 2}}, .strategy = "ddp", .options = sequence},
          {.mesh = {{"pipeline", 2}, {"data", 2}, {"tensor", 2}}, .strategy = "zero1"},
          {.mesh = {{"data", 2}, {"context", 2}}, .strategy = "zero1"},
          {.mesh = {{"pipeline", 2}, {"context", 2}}, .strategy = "ddp"},
          {.mesh = {{"context", 2}, {"tensor", 2}}, .strategy = "ddp"},
          {.mesh = {{"pipeline", 2}, {"expert", 2}}, .strategy = "ddp", .experts = 4},
          {.mesh = {{"expert", 2}, {"tensor", 2}}, .strategy = "ddp", .experts = 4},
          {.mesh = {{"context", 2}, {"expert", 2}}, .strategy = "ddp", .experts = 4}};
}

std::unique_ptr<Strategy> strategy_of(const Context& context, const Way& way) {
  const StrategyRegistry all = all_strategies();
  if (way.strategy == "planned") {
    ShardedOptions options;
    options.plan_text = kPlan;
    return all.make(way.strategy, context, options);
  }
  if (way.mesh.empty()) return all.make(way.strategy, context, way.options);
  return strategy_on_mesh(all, way.strategy, context.mesh(way.mesh),
                          [&](const std::string& name) -> OptionValues {
                            if (name == "tensor") return way.options;
                            if (name == "pipeline") return {{"micro-batches", "2"}};
                            return {};
                          });
}

std::shared_ptr<const Dataset> drawn_data() {
  const at::Tensor tokens = at::randint(24, {45, 9}, at::detail::createCPUGenerator(5), at::kLong);
  return std::make_shared<Rows>(tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous(), 24);
}

ModelFactory gpt_of(const Way& way) {
  return [experts = way.experts, in_float = way.precision.level != OptLevel::O0] {
    static std::mutex mutex;  // the default generator is shared
    const std::lock_guard lock(mutex);
    torch::manual_seed(3);
    Model model = make_model("gpt", {{"vocabulary", 24},
                                     {"context", 8},
                                     {"layers", 2},
                                     {"heads", 4},
                                     {"width", 16},
                                     {"dropout", 0.2},
                                     {"tied_head", true},
                                     {"experts", experts},
                                     {"capacity_factor", 0.0},
                                     {"balance_loss", 0.0}});
    model.module->to(in_float ? torch::kFloat : torch::kDouble);
    return model;
  };
}

struct Outcome {
  std::vector<double> losses;
  double evaluated = 0;
  NamedTensors weights;  // full, as in the checkpoint
};

NamedTensors copied(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const NamedTensor& tensor : tensors) copies.push_back({tensor.name, tensor.tensor.clone()});
  return copies;
}

FitOptions fit_options(const Strategy& strategy, std::int64_t steps) {
  return {.steps = steps, .batch_size = kJointBatch / strategy.num_replicas_in_sync(), .seed = 4};
}

Outcome train(const Way& way, const OptimizerOptions& optimizer) {
  const TemporaryDirectory directory;
  Outcome outcome;
  run_ranks(ranks_of(way), "native", [&](Context& context) {
    const auto strategy = strategy_of(context, way);
    Trainer trainer(*strategy, gpt_of(way), c10::kCPU, way.precision);
    trainer.compile(optimizer);
    const auto recorder = std::make_shared<Recorder>();
    FitOptions options = fit_options(*strategy, 7);  // the sixth batch is smaller
    options.callbacks = {recorder};
    trainer.fit(drawn_data(), options);
    const double evaluated = trainer.evaluate(*drawn_data(), {.batch_size = 4}).at("loss");
    trainer.save(directory.path(), /*keep=*/1);
    if (context.rank() == context.world_size() - 1) {
      outcome.losses = recorder->losses();
      outcome.evaluated = evaluated;
    }
    barrier(context.world());
  });
  outcome.weights = copied(read_weights(directory.path()));
  return outcome;
}

// Removes values that move arbitrarily: attention scores do not depend on the bias of keys, whose gradient is
// only rounding. Lion uses its sign, and Adam its direction even if rounded to 8 bits.
at::Tensor without_bias_of_keys(const NamedTensor& tensor) {
  if (!tensor.name.ends_with("c_attn.bias")) return tensor.tensor;
  const std::vector<at::Tensor> parts = tensor.tensor.chunk(3);
  return at::cat({parts[0], parts[2]});
}

void expect_same_weights(const NamedTensors& one, const NamedTensors& other, const std::string& what) {
  ASSERT_EQ(one.size(), other.size()) << what;
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].name, other[i].name) << what;
    const at::Tensor difference = without_bias_of_keys(one[i]) - without_bias_of_keys(other[i]);
    EXPECT_LE(difference.abs().max().item<double>(), kRounding) << what << ", " << one[i].name;
  }
}

void expect_same(const Outcome& outcome, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(outcome.losses.size(), expected.losses.size()) << what;
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(outcome.losses[i], expected.losses[i], kRounding) << what << ", step " << i;
  EXPECT_NEAR(outcome.evaluated, expected.evaluated, kRounding) << what;
  expect_same_weights(outcome.weights, expected.weights, what);
}

OptimizerOptions options_of(const std::string& name) {
  return {.name = name,
          .learning_rate = name == "lars" ? 1.0 : 0.01,
          .weight_decay = 0.1,
          .momentum = 0.9,
          .beta1 = 0.8,
          .beta2 = 0.95,
          .trust = 0.02,
          .decayed = Decayed::matrices};
}

class Rule : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(OnMeshes, Rule, ::testing::Values("adagrad", "lamb", "lars", "lion"),
                         [](const auto& info) { return info.param; });

void expect_as_one_process(const std::string& optimizer, const std::vector<Way>& ways) {
  const OptimizerOptions options = options_of(optimizer);
  const std::map<std::int64_t, Outcome> alone = {{0, train({}, options)},
                                                 {4, train({.experts = 4}, options)}};
  for (const auto& [experts, outcome] : alone)
    EXPECT_GT(std::abs(outcome.losses.back() - outcome.losses.front()), 1e-3) << "nothing was learned";
  for (const Way& way : ways) expect_same(train(way, options), alone.at(way.experts), describe(way));
}

bool compares_norms(const std::string& rule) { return rule == "lamb" || rule == "lars"; }

// Returns every second one: lamb and lion, lars and adagrad have the same ones; or all.
std::vector<Way> share_of(const std::string& rule, const std::vector<Way>& ways) {
  if (tests::all_combinations()) return ways;
  std::vector<Way> share;
  for (std::size_t i = rule == "lamb" || rule == "lion" ? 0 : 1; i < ways.size(); i += 2)
    share.push_back(ways[i]);
  return share;
}

TEST_P(Rule, UnderEveryStrategyIsThatOfOneProcess) {
  expect_as_one_process(GetParam(), share_of(GetParam(), strategies()));
}

TEST_P(Rule, OnEveryMeshIsThatOfOneProcess) {
  std::vector<Way> ways = meshes();
  if (compares_norms(GetParam())) {
    for (Way& way : more_meshes()) ways.push_back(std::move(way));
  }
  expect_as_one_process(GetParam(), share_of(GetParam(), ways));
}

// The optimizer has float32 copies of the strategy's parameters.
TEST_P(Rule, WithMasterWeightsLearnsWhatOneProcessDoes) {
  const PrecisionOptions masters{.level = OptLevel::O2, .dtype = at::kBFloat16};
  const Outcome alone = train({.precision = masters}, options_of(GetParam()));
  for (const Mesh& mesh : {Mesh{{"tensor", 2}}, Mesh{{"pipeline", 2}, {"tensor", 2}}, Mesh{{"context", 2}}}) {
    const Way way{.mesh = mesh, .strategy = "ddp", .precision = masters};
    const Outcome outcome = train(way, options_of(GetParam()));
    ASSERT_EQ(outcome.losses.size(), alone.losses.size()) << describe(way);
    // Sums in other orders are rounded differently, to 8 bits.
    for (std::size_t i = 0; i < alone.losses.size(); ++i)
      EXPECT_NEAR(outcome.losses[i], alone.losses[i], 0.05) << describe(way) << ", step " << i;
    if (!compares_norms(GetParam())) continue;
    for (std::size_t i = 0; i < alone.weights.size(); ++i) {
      const at::Tensor& weight = alone.weights[i].tensor;
      const double length = weight.norm().item<double>();
      EXPECT_NEAR(outcome.weights[i].tensor.norm().item<double>(), length, 0.02 * (1 + length))
          << describe(way) << ", " << alone.weights[i].name;
    }
  }
}

// Replicas that train alone apply the rule independently, and have the same weights after an average.
TEST_P(Rule, IsThatOfEachReplicaOfLocalSgd) {
  run_ranks(2, "native", [&](Context& context) {
    const auto strategy = all_strategies().make("local_sgd", context, OptionValues{{"sync-period", "2"}});
    Trainer trainer(*strategy, gpt_of({}));
    trainer.compile(options_of(GetParam()));
    const auto recorder = std::make_shared<Recorder>();
    FitOptions options = fit_options(*strategy, 6);
    options.callbacks = {recorder};
    trainer.fit(drawn_data(), options);
    EXPECT_EQ(recorder->losses().size(), 6U);
    for (const at::Tensor& parameter : trainer.model().module->parameters()) {
      at::Tensor of_first = parameter.detach().clone();
      broadcast(of_first, context.world(), /*root=*/0);
      EXPECT_TRUE(at::equal(of_first, parameter.detach()));
    }
  });
}

constexpr std::int64_t kAveragedSteps = 8;

// Trains with an average, from the checkpoint of step 4 if `resumes`. Returns the full average.
NamedTensors averaged(const Way& way, const std::filesystem::path& root, bool resumes) {
  const auto checkpoints = root / "checkpoints", average = root / "average";
  run_ranks(ranks_of(way), "native", [&](Context& context) {
    const auto strategy = strategy_of(context, way);
    Trainer trainer(*strategy, gpt_of(way), c10::kCPU, way.precision);
    trainer.compile(OptimizerOptions{.name = "adamw", .learning_rate = 1e-2});
    if (resumes) trainer.restore(checkpoints / checkpoint_name(4));
    FitOptions options = fit_options(*strategy, kAveragedSteps);
    options.validation = drawn_data();
    options.validate_every = 3;
    options.callbacks = {
        std::make_shared<WeightAverage>(WeightAverage::Options{.decay = 0.75, .directory = average}),
        std::make_shared<ModelCheckpoint>(
            ModelCheckpoint::Options{.directory = checkpoints, .every_steps = 4})};
    const FitResult result = trainer.fit(drawn_data(), options);
    // The model has the average, which the last validation used.
    EXPECT_EQ(trainer.evaluate(*drawn_data()).at("loss"), result.validation.at("loss")) << describe(way);
    barrier(context.world());
  });
  return copied(read_weights(average / checkpoint_name(kAveragedSteps)));
}

// Computes the average explicitly from the weights after each step of one process.
NamedTensors averaged_by_hand(const Way& way) {
  struct ByHand final : Callback {
    std::string name() const override { return "by_hand"; }
    void on_train_begin(Trainer& trainer, const FitOutline&) override { average = trainer.copy_weights(); }
    void on_step_end(Trainer& trainer, const StepRecord&) override {
      const WeightsCopy now = trainer.copy_weights();
      for (std::size_t i = 0; i < now.size(); ++i)
        average[i].local = 0.75 * average[i].local + 0.25 * now[i].local;
    }
    WeightsCopy average;
  };
  const auto by_hand = std::make_shared<ByHand>();
  run_ranks(1, "native", [&](Context& context) {
    const auto strategy = strategy_of(context, way);
    Trainer trainer(*strategy, gpt_of(way), c10::kCPU, way.precision);
    trainer.compile(OptimizerOptions{.name = "adamw", .learning_rate = 1e-2});
    FitOptions options = fit_options(*strategy, kAveragedSteps);
    options.callbacks = {by_hand};
    trainer.fit(drawn_data(), options);
  });
  NamedTensors average;
  for (const Shard& shard : by_hand->average) average.push_back({shard.name, shard.local.detach()});
  return average;
}

NamedTensors sorted(NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& one, const NamedTensor& other) { return one.name < other.name; });
  return tensors;
}

void expect_resumed_exactly(const Way& way, const std::filesystem::path& root, const NamedTensors& average) {
  const NamedTensors resumed = averaged(way, root, /*resumes=*/true);
  ASSERT_EQ(resumed.size(), average.size()) << describe(way);
  for (std::size_t i = 0; i < average.size(); ++i)
    EXPECT_TRUE(at::equal(resumed[i].tensor, average[i].tensor)) << describe(way) << ", " << average[i].name;
}

void expect_average_of_one_process(const std::vector<Way>& ways) {
  const std::map<std::int64_t, NamedTensors> alone = {{0, sorted(averaged_by_hand({}))},
                                                      {4, sorted(averaged_by_hand({.experts = 4}))}};
  for (const Way& way : ways) {
    const TemporaryDirectory directory;
    const NamedTensors average = averaged(way, directory.path(), /*resumes=*/false);
    expect_same_weights(sorted(average), alone.at(way.experts), describe(way));
    expect_resumed_exactly(way, directory.path(), average);
  }
}

TEST(AverageOnMeshes, UnderEveryStrategyIsThatOfOneProcess) { expect_average_of_one_process(strategies()); }

TEST(AverageOnMeshes, OnEveryMeshIsThatOfOneProcess) { expect_average_of_one_process(meshes()); }

TEST(AverageOnMeshes, OfMasterWeightsIsInFloat32) {
  const PrecisionOptions masters{.level = OptLevel::O2, .dtype = at::kBFloat16};
  const NamedTensors alone = sorted(averaged_by_hand({.precision = masters}));
  for (const Way& way :
       {Way{.precision = masters}, Way{.strategy = "ddp", .ranks = 2, .precision = masters},
        Way{.strategy = "zero3", .ranks = 2, .precision = masters},
        Way{.strategy = "mirrored", .options = {{"replicas", "2"}}, .precision = masters},
        Way{.mesh = {{"pipeline", 2}, {"data", 2}}, .strategy = "zero1", .precision = masters},
        Way{.mesh = {{"pipeline", 2}, {"tensor", 2}}, .strategy = "ddp", .precision = masters},
        Way{.mesh = {{"context", 2}}, .strategy = "ddp", .precision = masters}}) {
    const TemporaryDirectory directory;
    const NamedTensors average = averaged(way, directory.path(), /*resumes=*/false);
    ASSERT_EQ(average.size(), alone.size()) << describe(way);
    const NamedTensors by_name = sorted(average);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(by_name[i].tensor.scalar_type(), at::kFloat) << describe(way) << ", " << alone[i].name;
      // Gradients are rounded to 8 bits, and Adam makes steps of constant length from them.
      const at::Tensor difference = without_bias_of_keys(by_name[i]) - without_bias_of_keys(alone[i]);
      EXPECT_LE(difference.abs().mean().item<double>(), 5e-3) << describe(way) << ", " << alone[i].name;
    }
    expect_resumed_exactly(way, directory.path(), average);
  }
}

}  // namespace
}  // namespace rondo::optimizers_on_meshes_test
