// Compares training with layers divided among ranks with one process: every mesh of tensor and data, gpt and
// bert, with dropout, clipping and accumulation. Checkpoints are interchangeable between layouts.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <mutex>

#include "rondo/base/error.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::tensor_parallel_training_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::Recorder;
using testing::Rows;
using testing::run_ranks;

constexpr std::int64_t kJointBatch = 8;
constexpr std::int64_t kSteps = 8;  // past the smaller last batch of an epoch
// Tolerance in float64 for sums in another order after so many steps.
constexpr double kRounding = 1e-9;

struct Way {
  Mesh mesh = {};  // empty: one process
  std::string strategy = "one_device";
  bool sequence = false;
  std::int64_t accumulate = 1;
  std::string schedule = "1f1b";
};

struct Outcome {
  std::vector<double> losses, norms;
  NamedTensors tensors;  // full, as in the checkpoint
  std::map<std::string, double> validation;
  at::Tensor predictions;
};

struct Task {
  std::string model;
  nlohmann::json config;
  std::shared_ptr<const Dataset> data;
};

at::Tensor drawn(at::IntArrayRef shape, std::int64_t below) {
  return at::randint(below, shape, at::detail::createCPUGenerator(5), at::kLong);
}

Task gpt(bool tied) {
  const at::Tensor tokens = drawn({45, 9}, 24);  // the last batch of an epoch is smaller
  return {
      "gpt",
      {{"vocabulary", 24},
       {"context", 8},
       {"layers", 2},
       {"heads", 4},
       {"width", 16},
       {"dropout", 0.2},
       {"tied_head", tied}},
      std::make_shared<Rows>(tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous(), 24)};
}

Task bert(const std::string& task) {
  at::Tensor input = at::zeros({45, 3, 8}, at::kLong);
  input.select(1, 0).copy_(drawn({45, 8}, 23) + 1);
  input.select(1, 2).fill_(1);
  return {"bert",
          {{"task", task},
           {"vocabulary", 24},
           {"positions", 8},
           {"layers", 2},
           {"heads", 4},
           {"width", 16},
           {"intermediate", 24},
           {"classes", 3},
           {"dropout", 0.2},
           {"attention_dropout", 0.2},
           {"classifier_dropout", 0.2}},
          std::make_shared<Rows>(input, task == "mlm" ? drawn({45, 8}, 24) : drawn({45}, 3), 24)};
}

Model made(const Task& task) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  Model model = make_model(task.model, task.config);
  model.module->to(torch::kDouble);
  return model;
}

std::unique_ptr<Strategy> strategy_of(const Context& context, const Way& way) {
  if (way.mesh.empty()) return all_strategies().make(way.strategy, context);
  return strategy_on_mesh(all_strategies(), way.strategy, context.mesh(way.mesh),
                          [&](const std::string& name) -> OptionValues {
                            if (name == "tensor" && way.sequence) return {{"sequence-parallel", "true"}};
                            if (name == "pipeline")
                              return {{"micro-batches", "3"}, {"pipeline-schedule", way.schedule}};
                            return {};
                          });
}

int ranks_in(const Way& way) {
  int ranks = 1;
  for (const MeshDimension& dimension : way.mesh) ranks *= dimension.size;
  return ranks;
}

// Trains from `resume`, if not empty, up to `steps`, and saves to `save`.
Outcome train(const Task& task, const Way& way, std::int64_t steps = kSteps,
              const std::filesystem::path& resume = {}, std::filesystem::path save = {}) {
  const TemporaryDirectory own;
  if (save.empty()) save = own.path();
  Outcome outcome;
  run_ranks(
      ranks_in(way), "native",
      [&](Context& context) {
        const auto strategy = strategy_of(context, way);
        Trainer trainer(*strategy, made(task));
        trainer.compile(testing::adamw(), cross_entropy, {loss_metric(), accuracy_metric()});
        if (!resume.empty()) trainer.restore(resume);
        const auto recorder = std::make_shared<Recorder>();
        trainer.fit(task.data, {.epochs = 100,
                                .steps = steps,
                                .batch_size = kJointBatch / strategy->num_replicas_in_sync() / way.accumulate,
                                .accumulate = way.accumulate,
                                .seed = 4,
                                .clip_norm = 0.5,
                                .callbacks = {recorder}});
        const auto validation = trainer.evaluate(*task.data, {.batch_size = 4});
        const at::Tensor predictions = trainer.predict(*task.data, {.batch_size = 4});
        trainer.save(save, /*keep=*/1);
        if (context.rank() == context.world_size() - 1) {
          outcome.losses = recorder->losses();
          for (const StepRecord& step : recorder->steps_)
            outcome.norms.push_back(step.gradient_norm.value_or(-1));
          outcome.validation = validation;
          outcome.predictions = predictions;
        }
        barrier(context.world());
      },
      std::chrono::seconds(60));
  for (const NamedTensor& tensor : read_weights(save))
    outcome.tensors.push_back({tensor.name, tensor.tensor.clone()});
  return outcome;
}

void expect_same(const Outcome& outcome, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(outcome.losses.size(), expected.losses.size()) << what;
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], expected.losses[i], kRounding) << what << ", step " << i;
    EXPECT_NEAR(outcome.norms[i], expected.norms[i], kRounding) << what << ", step " << i;
  }
  for (const auto& [name, value] : expected.validation)
    EXPECT_NEAR(outcome.validation.at(name), value, kRounding) << what << ", " << name;
  EXPECT_TRUE(at::allclose(outcome.predictions, expected.predictions, kRounding, kRounding)) << what;
  ASSERT_EQ(outcome.tensors.size(), expected.tensors.size()) << what;
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    EXPECT_EQ(outcome.tensors[i].name, expected.tensors[i].name);
    EXPECT_TRUE(at::allclose(outcome.tensors[i].tensor, expected.tensors[i].tensor, kRounding, kRounding))
        << what << ", " << expected.tensors[i].name;
  }
}

TEST(TensorParallelTraining, OfGptIsThatOfOneProcess) {
  for (const bool tied : {false, true}) {
    const Task task = gpt(tied);
    const Outcome one = train(task, {});
    expect_same(train(task, {{{"tensor", 2}}, "tensor"}), one, "tensor 2");
    expect_same(train(task, {{{"tensor", 4}}, "tensor"}), one, "tensor 4");
    expect_same(train(task, {{{"tensor", 2}}, "tensor", true}), one, "tensor 2, divided sequence");
  }
}

TEST(TensorParallelTraining, OfBertIsThatOfOneProcess) {
  for (const char* const kind : {"mlm", "classify"}) {
    const Task task = bert(kind);
    const Outcome one = train(task, {});
    expect_same(train(task, {{{"tensor", 2}}, "tensor"}), one, kind);
    expect_same(train(task, {{{"data", 2}, {"tensor", 2}}, "zero2"}), one, kind);
  }
}

TEST(TensorParallelTraining, RunsUnderEveryStrategyAlongData) {
  const Task task = gpt(/*tied=*/false);
  const Outcome one = train(task, {});
  const Mesh mesh = {{"data", 2}, {"tensor", 2}};
  for (const char* const strategy : {"ddp", "zero1", "zero2", "zero3"})
    expect_same(train(task, {mesh, strategy}), one, strategy);
  expect_same(train(task, {mesh, "zero3", /*sequence=*/true}), one, "zero3, divided sequence");
  expect_same(train(task, {mesh, "ddp", false, /*accumulate=*/2}), one, "accumulated");
}

TEST(TensorParallelTraining, DividedContextEqualsOneProcess) {
  Task task = gpt(/*tied=*/false);
  // Ranks have different numbers of predictions.
  const at::Tensor tokens = drawn({45, 9}, 24);
  at::Tensor targets = tokens.narrow(1, 1, 8).clone();
  targets.narrow(1, 0, 2).fill_(kIgnoredTarget);
  task.data = std::make_shared<Rows>(tokens.narrow(1, 0, 8).contiguous(), targets, 24);
  const Outcome one = train(task, {});
  expect_same(train(task, {{{"context", 2}}, "context"}), one, "context 2");
  expect_same(train(task, {{{"context", 4}}, "context"}), one, "context 4");
  expect_same(train(task, {{{"data", 2}, {"context", 2}}, "zero1"}), one, "data 2, context 2");
  expect_same(train(task, {.mesh = {{"pipeline", 2}, {"context", 2}}, .strategy = "ddp"}), one, "stages");
  expect_same(train(task, {{{"context", 2}, {"tensor", 2}}, "ddp", false, /*accumulate=*/2}), one,
              "context 2, tensor 2");
}

TEST(TensorParallelTraining, PipelineAndTensorEqualOneProcess) {
  const Mesh mesh = {{"pipeline", 2}, {"tensor", 2}};
  for (const bool tied : {false, true}) {
    const Task task = gpt(tied);
    const Outcome one = train(task, {});
    for (const char* const schedule : {"1f1b", "zb_h1"})
      expect_same(train(task, {.mesh = mesh, .strategy = "ddp", .schedule = schedule}), one, schedule);
    expect_same(train(task, {.mesh = mesh, .strategy = "ddp", .sequence = true}), one, "divided sequence");
    expect_same(train(task, {.mesh = {{"pipeline", 2}, {"context", 2}}, .strategy = "ddp"}), one, "context");
  }
  const Task task = bert("mlm");
  expect_same(train(task, {.mesh = mesh, .strategy = "ddp"}), train(task, {}), "bert");
}

TEST(TensorParallelTraining, OfThreeDimensionsIsThatOfOneProcess) {
  const Task task = gpt(/*tied=*/true);
  const Outcome one = train(task, {});
  const Mesh mesh = {{"pipeline", 2}, {"data", 2}, {"tensor", 2}};
  for (const char* const strategy : {"ddp", "zero1", "zero3"})
    expect_same(train(task, {.mesh = mesh, .strategy = strategy}), one, strategy);
  expect_same(train(task, {.mesh = mesh, .strategy = "ddp", .accumulate = 2}), one, "accumulated");
}

TEST(TensorParallelTraining, CheckpointsAreThoseOfAnyLayout) {
  const Task task = gpt(/*tied=*/true);
  const Outcome one = train(task, {});
  const std::vector<Way> ways = {{},
                                 {{{"tensor", 2}}, "tensor"},
                                 {{{"data", 2}, {"tensor", 2}}, "zero1"},
                                 {{{"tensor", 4}}, "tensor", /*sequence=*/true},
                                 {{{"pipeline", 2}, {"tensor", 2}}, "ddp"},
                                 {{{"data", 2}}, "ddp"},
                                 {{{"pipeline", 2}, {"data", 2}, {"tensor", 2}}, "zero1"},
                                 {{{"context", 2}}, "context"},
                                 {{{"data", 2}}, "ddp"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const TemporaryDirectory directory;
    train(task, ways[i], kSteps / 2, {}, directory.path());
    const Outcome rest = train(task, ways[(i + 1) % ways.size()], kSteps, directory.path());
    Outcome end = one;
    end.losses.erase(end.losses.begin(), end.losses.begin() + kSteps / 2);
    end.norms.erase(end.norms.begin(), end.norms.begin() + kSteps / 2);
    expect_same(rest, end, "from way " + std::to_string(i));
  }
}

TEST(TensorParallelTraining, BadInputNamesBothNumbers) {
  run_ranks(3, "native", [&](Context& context) {
    const auto refused = [&](const Task& task) {
      return message_of<UsageError>([&] {
        const auto strategy = strategy_of(context, {{{"tensor", 3}}, "tensor"});
        Trainer trainer(*strategy, made(task));
      });
    };
    Task task = gpt(false);
    expect_facts(refused(task), {"attn", "4", "3", "heads"});
    task.config["heads"] = 1;
    task.config["width"] = 15;
    task.config["vocabulary"] = 25;
    expect_facts(refused(task), {"wte", "25", "3"});
    expect_facts(refused({"mlp", nlohmann::json::object(), nullptr}), {"tensor", "tensor-rules"});
    // A sequence of 8 cannot be divided into six pieces.
    const auto strategy = strategy_of(context, {{{"context", 3}}, "context"});
    Trainer trainer(*strategy, made(gpt(false)));
    trainer.compile(testing::adamw(), cross_entropy);
    expect_facts(message_of<UsageError>([&] { trainer.fit(gpt(false).data, {.steps = 1, .batch_size = 2}); }),
                 {"8", "3", "6"});
  });
}

}  // namespace
}  // namespace rondo::tensor_parallel_training_test
