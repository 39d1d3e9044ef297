// A pipeline trains as one process does: every schedule, on any mesh, through Trainer.

#include "rondo/parallel/pipeline/pipeline_strategy.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include <mutex>

#include "rondo/base/error.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/equality_models.h"

namespace rondo::pipeline_test {
namespace {

using ::rondo::testing::expect_facts;
using ::rondo::testing::make_subject;
using ::rondo::testing::message_of;
using ::rondo::testing::run_ranks;
using ::rondo::testing::Subject;

using Values = std::map<std::string, at::Tensor>;

struct Way {
  std::string name = "pipeline";
  Mesh mesh = {};
  OptionValues options = {};
  std::int64_t micro_batches = 3;  // divides no batch here
  std::string subject = "gpt";
  double clip_norm = 0.0;
  std::int64_t accumulate = 1;
};

constexpr std::int64_t kJointBatch = 16;  // the last batch of an epoch has 12
constexpr int kSteps = 20;

// Returns the subject; "tied gpt" has a tied head, "even gpt" also a vocabulary divisible by two.
Subject subject_of(const std::string& name) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  if (name != "tied gpt" && name != "even gpt") return make_subject(name);
  Subject subject = make_subject("gpt");
  torch::manual_seed(13);
  nlohmann::json config = subject.model.config;
  config["tied_head"] = true;
  if (name == "even gpt") {
    config["vocabulary"] = 12;
    const at::Tensor tokens = torch::randint(12, {60, 7}, torch::kLong);
    subject.data = std::make_shared<::rondo::testing::Rows>(tokens.narrow(1, 0, 6).contiguous(),
                                                            tokens.narrow(1, 1, 6).contiguous(), 12);
  }
  subject.model = make_model("gpt", config);
  subject.model.module->to(torch::kDouble);
  return subject;
}

struct Trained {
  Values values;  // values on this rank
  std::vector<double> losses;
  std::vector<double> norms;
  double evaluated = 0;
  at::Tensor predicted;
};

class Record final : public Callback {
 public:
  explicit Record(Trained& trained) : trained_(trained) {}
  std::string name() const override { return "record"; }
  void on_step_end(Trainer&, const StepRecord& step) override {
    trained_.losses.push_back(step.loss);
    if (step.gradient_norm) trained_.norms.push_back(*step.gradient_norm);
  }

 private:
  Trained& trained_;
};

std::unique_ptr<Strategy> make_strategy_of(const Way& way, const Context& context) {
  const StrategyRegistry strategies = all_strategies();
  if (way.mesh.empty()) return strategies.make(way.name, context, way.options);
  OptionValues options = way.options;
  options["micro-batches"] = std::to_string(way.micro_batches);
  return strategy_on_mesh(strategies, way.name, context.mesh(way.mesh), [&](const std::string& name) {
    OptionValues own = options;
    std::erase_if(own, [&](const auto& each) {
      return strategies.declaration(name).options.find(each.first) == nullptr;
    });
    return own;
  });
}

Values values_of(const torch::nn::Module& module) {
  Values values;
  for (const auto& entry : module.named_parameters()) {
    if (entry.value().numel() > 0) values[entry.key()] = entry.value().detach().clone();
  }
  return values;
}

Trained train(Context& context, const Way& way, int steps = kSteps) {
  const Subject subject = subject_of(way.subject);
  const auto strategy = make_strategy_of(way, context);
  Trainer trainer(*strategy, subject.model);
  trainer.compile([](torch::nn::Module& module) {
    return make_optimizer({.name = "adamw", .learning_rate = 1e-2}, module);
  });
  Trained trained;
  FitOptions options{.steps = steps,
                     .batch_size = kJointBatch / strategy->num_replicas_in_sync() / way.accumulate,
                     .accumulate = way.accumulate,
                     .seed = 5,
                     .clip_norm = way.clip_norm};
  options.callbacks.push_back(std::make_shared<Record>(trained));
  trainer.fit(subject.data, options);
  trained.evaluated = trainer.evaluate(*subject.data, {.batch_size = 7}).at("loss");
  trained.predicted = trainer.predict(*subject.data, {.batch_size = 7});
  trained.values = values_of(*trainer.model().module);
  barrier(context.world());
  return trained;
}

std::vector<Trained> train_on(int ranks, const Way& way, int steps = kSteps) {
  std::vector<Trained> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, "native", [&](Context& context) {
    results[static_cast<std::size_t>(context.rank())] = train(context, way, steps);
  });
  return results;
}

double largest(const std::vector<Trained>& results, const Trained& alone) {
  double difference = 0;
  std::set<std::string> seen;
  for (const Trained& result : results) {
    for (const auto& [name, value] : result.values) {
      seen.insert(name);
      difference = std::max(difference, (value - alone.values.at(name)).abs().max().item<double>());
    }
    EXPECT_EQ(result.losses.size(), alone.losses.size());
    for (std::size_t i = 0; i < std::min(result.losses.size(), alone.losses.size()); ++i)
      difference = std::max(difference, std::abs(result.losses[i] - alone.losses[i]));
    for (std::size_t i = 0; i < std::min(result.norms.size(), alone.norms.size()); ++i)
      difference = std::max(difference, std::abs(result.norms[i] - alone.norms[i]));
    difference = std::max(difference, std::abs(result.evaluated - alone.evaluated));
    EXPECT_EQ(result.predicted.sizes(), alone.predicted.sizes());
    difference = std::max(difference, (result.predicted - alone.predicted).abs().max().item<double>());
  }
  EXPECT_EQ(seen.size(), alone.values.size());
  return difference;
}

Way of(const std::string& schedule, Mesh mesh, const std::string& subject = "gpt") {
  Way way{.mesh = std::move(mesh), .subject = subject};
  way.options["pipeline-schedule"] = schedule;
  return way;
}

class Schedules : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Pipeline, Schedules,
                         ::testing::Values("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"));

TEST_P(Schedules, TrainAsOneProcess) {
  for (const std::string subject : {"gpt", "tied gpt", "bert"}) {
    const std::vector<Trained> alone = train_on(1, {.name = "one_device", .subject = subject});
    EXPECT_LE(largest(train_on(2, of(GetParam(), {{"pipeline", 2}}, subject)), alone[0]), 1e-8) << subject;
  }
}

TEST_P(Schedules, TrainBitForBitAsAccumulation) {
  // The same micro-batches, summed in the same order.
  const Trained alone = train_on(1, {.name = "one_device", .accumulate = 4}, 3).front();
  Way way = of(GetParam(), {{"pipeline", 2}});
  way.micro_batches = 4;
  for (const Trained& result : train_on(2, way, 3)) {
    EXPECT_EQ(result.losses, alone.losses);
    for (const auto& [name, value] : result.values)
      EXPECT_TRUE(at::equal(value, alone.values.at(name))) << name;
  }
}

TEST_P(Schedules, ReplicateAlongData) {
  for (const std::string data : {"ddp", "zero1"}) {
    Way alone{.name = "one_device", .subject = "tied gpt", .clip_norm = 0.05};
    Way way = of(GetParam(), {{"pipeline", 2}, {"data", 2}}, "tied gpt");
    way.name = data;
    way.clip_norm = 0.05;
    EXPECT_LE(largest(train_on(4, way, 6), train_on(1, alone, 6)[0]), 1e-8) << data;
  }
}

TEST(Pipeline, AboveEveryShardedStrategy) {
  const Trained alone = train_on(1, {.name = "one_device", .clip_norm = 0.05}, 4).front();
  for (const std::string data : {"zero2", "zero3", "hsdp"}) {
    Way way = of("1f1b", {{"pipeline", 2}, {"data", 2}});
    way.name = data;
    way.clip_norm = 0.05;
    EXPECT_LE(largest(train_on(4, way, 4), alone), 1e-8) << data;
  }
}

TEST(Pipeline, OfFourStages) {
  const std::vector<Trained> alone = train_on(1, {.name = "one_device"}, 4);
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"})
    EXPECT_LE(largest(train_on(4, of(schedule, {{"pipeline", 4}}), 4), alone[0]), 1e-8) << schedule;
}

TEST(Pipeline, ByNameAccumulatesAndClips) {
  Way alone{.name = "one_device", .clip_norm = 0.05};
  Way way{.name = "pipeline", .clip_norm = 0.05, .accumulate = 2};
  way.options = {{"micro-batches", "3"}, {"stage-cuts", "transformer.h.1"}};
  EXPECT_LE(largest(train_on(2, way, 6), train_on(1, alone, 6)[0]), 1e-8);
}

// Checkpoints written as a whole, or in parts by all ranks.
class Checkpoints : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Pipeline, Checkpoints, ::testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "InParts" : "Whole"); });

TEST_P(Checkpoints, AreLeftForOthersAndTakenFromThem) {
  const TemporaryDirectory directory;
  const std::vector<Trained> alone = train_on(1, {.name = "one_device", .subject = "even gpt"}, 10);
  const auto go = [&](int ranks, const Way& way, int steps, Trained* result) {
    run_ranks(ranks, "native", [&](Context& context) {
      const Subject subject = subject_of("even gpt");
      const auto strategy = make_strategy_of(way, context);
      Trainer trainer(*strategy, subject.model);
      trainer.compile([](torch::nn::Module& module) {
        return make_optimizer({.name = "adamw", .learning_rate = 1e-2}, module);
      });
      if (steps > 2) trainer.restore(directory.path());
      trainer.fit(subject.data,
                  {.steps = steps, .batch_size = kJointBatch / strategy->num_replicas_in_sync(), .seed = 5});
      trainer.save(directory.path(), SaveOptions{.keep = 1, .in_parts = GetParam()});
      if (result != nullptr && context.rank() == 0) result->values = values_of(*trainer.model().module);
      barrier(context.world());
    });
  };
  go(2, of("1f1b", {{"pipeline", 2}}), 2, nullptr);
  go(2, {.name = "ddp"}, 3, nullptr);
  Way mesh = of("zb_v", {{"pipeline", 2}, {"data", 2}});
  mesh.name = "zero1";
  go(4, mesh, 4, nullptr);
  go(4, of("gpipe", {{"pipeline", 4}}), 5, nullptr);
  go(4, of("gpipe", {{"pipeline", 4}}), 6, nullptr);  // the same mesh again
  go(2, {.name = "tensor"}, 7, nullptr);
  go(4, {.name = "zero1", .mesh = {{"data", 2}, {"tensor", 2}}}, 8, nullptr);
  go(2, of("zb_h1", {{"pipeline", 2}}), 9, nullptr);
  Trained last;
  go(1, {.name = "one_device"}, 10, &last);
  for (const auto& [name, value] : alone[0].values)
    EXPECT_LE((value - last.values.at(name)).abs().max().item<double>(), 1e-8) << name;
}

TEST(Pipeline, RefusesWhatCannotBe) {
  const auto refused = [](const Way& way) { return message_of<UsageError>([&] { train_on(2, way, 1); }); };
  Way way = of("1f1b", {{"pipeline", 2}});
  way.options["stage-cuts"] = "transformer.h.9";
  expect_facts(refused(way), {"'transformer.h.9'", "transformer.h.2"});
  way = of("interleaved", {{"pipeline", 2}});
  way.options["pipeline-chunks"] = "3";
  expect_facts(refused(way), {"5", "6"});
  way = of("1f1b", {{"pipeline", 2}}, "convolutions");
  expect_facts(refused(way), {"'convolutions'", "LayerSequence"});
  expect_facts(refused(of("1f1b", {{"pipeline", 3}})), {"3", "2"});
}

// A model whose first layer returns [samples, 3] and later [samples, 4] for the same input.
struct FickleImpl : torch::nn::Module, LayerSequence {
  FickleImpl() { last = register_module("last", torch::nn::Linear(3, 2)); }
  std::vector<ModelLayer> layers() override {
    return {
        make_layer(
            "first", {},
            [this](const at::Tensor& x) { return calls++ < 1 ? x.narrow(1, 0, 3).clone() : x.clone(); }),
        make_layer("last", {last.ptr()}, [this](const at::Tensor& x) { return last(x.narrow(1, 0, 3)); })};
  }
  at::Tensor forward(const at::Tensor& x) { return last(x.narrow(1, 0, 3)); }
  torch::nn::Linear last{nullptr};
  int calls = 0;
};

TEST(Pipeline, NoticesThatWhatPassesChangesItsShape) {
  const std::string message = message_of<UsageError>([] {
    run_ranks(2, "native", [](Context& context) {
      const auto strategy = all_strategies().make("pipeline", context, OptionValues{{"micro-batches", "2"}});
      Trainer trainer(*strategy, std::make_shared<FickleImpl>());
      trainer.compile([](torch::nn::Module& module) { return make_optimizer({.name = "sgd"}, module); });
      const auto data =
          std::make_shared<::rondo::testing::Rows>(torch::ones({8, 4}), torch::zeros({8}, torch::kLong), 2);
      if (context.rank() == 0) {
        trainer.fit(data, {.steps = 1, .batch_size = 4});
      } else {
        EXPECT_THROW(trainer.fit(data, {.steps = 1, .batch_size = 4}), std::exception);
      }
    });
  });
  expect_facts(message, {"[2, 3]", "[2, 4]"});
}

}  // namespace
}  // namespace rondo::pipeline_test
