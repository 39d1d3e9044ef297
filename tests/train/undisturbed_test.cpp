// Compares a training with checkpoints, memory checkpoints and validations at any step with one without them,
// bit for bit, under every strategy.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <mutex>
#include <set>
#include <thread>

#include "rondo/backend/collectives.h"
#include "rondo/parallel/grouped/grouped_strategy.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/parallel/server/server_strategy.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/server/service.h"
#include "rondo/train/memory_checkpoint_saver.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::undisturbed_test {
namespace {

using testing::Recorder;
using testing::Rows;
using testing::run_ranks;

constexpr std::int64_t kSteps = 7;

constexpr const char* kPlan = R"({"units": [{"name": "root", "strategy": "ddp"},
                                            {"name": "transformer.h.0", "strategy": "zero3"},
                                            {"name": "transformer.h.1", "strategy": "zero1"}]})";

struct Way {
  std::string strategy;
  int ranks = 1;
  OptionValues options = {};
  std::string mesh = {};           // dimension of two ranks; empty: none
  std::string backend = "native";  // backend of every rank
  std::vector<int> hosts = {};     // by rank; empty: one host
};

std::string describe(const Way& way) {
  std::string text = way.strategy + " " + way.mesh + " on " + std::to_string(way.ranks);
  for (const auto& [name, value] : way.options) text += " " + name + "=" + value;
  return text + " over " + way.backend;
}

const OptionValues kTwo = {{"replicas", "2"}};

std::vector<Way> ways() {
  const std::vector<int> apart = {0, 1};
  const std::string between = "hierarchical(native, gloo)";
  return {
      {.strategy = "default"},
      {.strategy = "one_device"},
      {.strategy = "ddp", .ranks = 2},
      {.strategy = "ddp", .ranks = 2, .options = {{"codec", "top_k:0.1"}}},
      {.strategy = "ddp", .ranks = 2, .options = {{"codec", "power_sgd:rank=2,start=2"}}},
      {.strategy = "ddp", .ranks = 2, .backend = between, .hosts = apart},
      {.strategy = "ddp", .ranks = 2, .backend = "hierarchical(native, gloo, codec=int8)", .hosts = apart},
      {.strategy = "zero1", .ranks = 2},
      {.strategy = "zero1", .ranks = 2, .backend = between, .hosts = apart},
      {.strategy = "zero2", .ranks = 2},
      {.strategy = "zero2", .ranks = 2, .backend = between, .hosts = apart},
      {.strategy = "zero3", .ranks = 2},
      {.strategy = "zero3", .ranks = 2, .backend = between, .hosts = apart},
      {.strategy = "zero3_keep", .ranks = 2},
      {.strategy = "hsdp", .ranks = 4, .options = {{"shard-ranks", "2"}}},
      {.strategy = "planned", .ranks = 2},
      {.strategy = "planned", .ranks = 2, .backend = between, .hosts = apart},
      {.strategy = "random", .ranks = 2},
      {.strategy = "tpu", .ranks = 4},
      {.strategy = "data_parallel", .options = kTwo},
      {.strategy = "mirrored", .options = kTwo},
      {.strategy = "central_storage", .options = kTwo},
      {.strategy = "multi_worker_mirrored", .ranks = 2, .options = kTwo},
      {.strategy = "pipeline", .ranks = 2, .mesh = "pipeline"},
      {.strategy = "tensor", .ranks = 2, .mesh = "tensor"},
      {.strategy = "context", .ranks = 2, .mesh = "context"},
      {.strategy = "expert", .ranks = 2, .mesh = "expert"},
      {.strategy = "local_sgd", .ranks = 2, .options = {{"sync-period", "4"}}},
      {.strategy = "local_sgd", .ranks = 2, .options = {{"sync-period", "4"}, {"sync-delay", "3"}}},
      {.strategy = "local_sgd",
       .ranks = 2,
       .options = {{"sync-period", "4"},
                   {"sync-delay", "2"},
                   {"sync-fragments", "2"},
                   {"outer-optimizer", "diloco"}}},
  };
}

std::unique_ptr<Strategy> strategy_of(const Context& context, const Way& way) {
  const StrategyRegistry all = all_strategies();
  if (way.strategy == "planned") {
    ShardedOptions options;
    options.plan_text = kPlan;
    return all.make(way.strategy, context, options);
  }
  if (way.mesh.empty()) return all.make(way.strategy, context, way.options);
  return strategy_on_mesh(all, "ddp", context.mesh({{way.mesh, 2}}),
                          [](const std::string& name) -> OptionValues {
                            if (name == "pipeline") return {{"micro-batches", "2"}};
                            return {};
                          });
}

ModelFactory gpt(bool has_experts) {
  return [has_experts] {
    static std::mutex mutex;  // the default generator is shared
    const std::lock_guard lock(mutex);
    torch::manual_seed(3);
    return make_model("gpt", {{"vocabulary", 24},
                              {"context", 8},
                              {"layers", 2},
                              {"heads", 4},
                              {"width", 16},
                              {"dropout", 0.2},
                              {"experts", has_experts ? 4 : 0}});
  };
}

std::shared_ptr<const Dataset> sentences() {
  const at::Tensor tokens = at::randint(24, {45, 9}, at::detail::createCPUGenerator(5), at::kLong);
  return std::make_shared<Rows>(tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous(), 24);
}

// A callback that saves after every step, each time in another way.
class Disturbance final : public Callback {
 public:
  // `saves_in_memory` is false for workers of parameter servers, which do not support them.
  Disturbance(std::filesystem::path root, bool saves_in_memory)
      : root_(std::move(root)), saves_in_memory_(saves_in_memory) {}
  std::string name() const override { return "disturbance"; }
  void on_train_begin(Trainer& trainer, const FitOutline&) override {
    if (saves_in_memory_) memory_.emplace(trainer.strategy().context(), root_ / "memory");
  }
  void on_step_complete(Trainer& trainer, const StepRecord& record) override {
    switch (record.step % 5) {
      case 0:
        trainer.save(root_ / "whole", SaveOptions{.keep = 1});
        break;
      case 1:
        trainer.save(root_ / "parts", SaveOptions{.keep = 1, .in_parts = true});
        break;
      case 2:
        if (memory_) save_in_memory(trainer, *memory_);
        break;
      case 3:
        trainer.evaluate(*sentences(), {.batch_size = 4});
        trainer.copy_weights();
        break;
      default:
        trainer.save(root_ / "background", SaveOptions{.keep = 1, .in_background = true});
        if (memory_) save_in_memory(trainer, *memory_);
        break;
    }
  }
  void on_train_end(Trainer& trainer, const FitResult&) override {
    trainer.finish_save();
    if (memory_) {
      EXPECT_EQ(memory_->finish(), "");
    }
  }

 private:
  std::filesystem::path root_;
  bool saves_in_memory_;
  std::optional<MemoryCheckpointSaver> memory_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;  // weights of this rank
};

Trained train(Strategy& strategy, const ModelFactory& model, const OptimizerOptions& optimizer,
              std::shared_ptr<Callback> disturbance) {
  Trainer trainer(strategy, model);
  trainer.compile(optimizer);
  const auto recorder = std::make_shared<Recorder>();
  FitOptions options{.steps = kSteps, .batch_size = 4, .accumulate = 2, .callbacks = {recorder}};
  if (disturbance) options.callbacks.push_back(std::move(disturbance));
  trainer.fit(sentences(), options);
  Trained result{recorder->losses(), {}};
  for (const Shard& shard : trainer.copy_weights()) result.weights.push_back(shard.local);
  return result;
}

void expect_same(const Trained& disturbed, const Trained& undisturbed, const std::string& what) {
  ASSERT_EQ(undisturbed.losses.size(), static_cast<std::size_t>(kSteps)) << what;
  EXPECT_EQ(disturbed.losses, undisturbed.losses) << what;
  ASSERT_EQ(disturbed.weights.size(), undisturbed.weights.size()) << what;
  for (std::size_t i = 0; i < undisturbed.weights.size(); ++i)
    EXPECT_TRUE(disturbed.weights[i].equal(undisturbed.weights[i])) << what << ", tensor " << i;
}

TEST(SavesChangeNothing, UnderEveryStrategy) {
  for (const Way& way : ways()) {
    std::vector<Trained> undisturbed(static_cast<std::size_t>(way.ranks));
    const TemporaryDirectory directory;
    for (const bool disturbs : {false, true}) {
      run_ranks(
          way.ranks, way.backend,
          [&](Context& context) {
            const auto strategy = strategy_of(context, way);
            std::shared_ptr<Callback> disturbance;
            if (disturbs) disturbance = std::make_shared<Disturbance>(directory.path(), true);
            Trained trained = train(*strategy, gpt(way.mesh == "expert"),
                                    {.name = "adamw", .learning_rate = 1e-2}, disturbance);
            Trained& before = undisturbed[static_cast<std::size_t>(context.rank())];
            if (disturbs) {
              expect_same(trained, before, describe(way));
            } else {
              before = std::move(trained);
            }
            barrier(context.world());
          },
          std::chrono::seconds(60), way.hosts);
    }
  }
}

// One server with a single worker.
TEST(SavesChangeNothing, WithParameterServers) {
  for (const bool is_group : {false, true}) {
    Trained undisturbed;
    for (const bool disturbs : {false, true}) {
      const TemporaryDirectory directory;
      const control::JobSecret secret = control::JobSecret::make();
      server::Service service(server::ServiceOptions{}, secret);
      server::ClusterOptions connect;
      connect.addresses = {service.address()};
      connect.timeout = std::chrono::seconds(60);
      const std::jthread serving(
          [&](const std::stop_token& stop) { service.run([&] { return stop.stop_requested(); }); });
      std::unique_ptr<Strategy> strategy;
      const Context alone = init({.init_method = "alone"});
      if (is_group) {
        GroupPlace place;
        strategy = std::make_unique<GroupedStrategy>(alone, connect, secret, place, DdpStrategyOptions());
      } else {
        strategy = std::make_unique<ServerStrategy>(alone, connect, secret);
      }
      std::shared_ptr<Callback> disturbance;
      if (disturbs) disturbance = std::make_shared<Disturbance>(directory.path(), false);
      Trained trained = train(*strategy, gpt(false), {.name = "sgd", .learning_rate = 0.1}, disturbance);
      if (disturbs) {
        expect_same(trained, undisturbed, strategy->name());
      } else {
        undisturbed = std::move(trained);
      }
    }
  }
}

TEST(SavesChangeNothing, CoversEveryStrategy) {
  std::set<std::string> known = {"parameter_server", "grouped"};
  for (const Way& way : ways()) known.insert(way.strategy);
  for (const std::string& name : all_strategies().names())
    EXPECT_TRUE(known.contains(name)) << name << " is missing in this file";
}

}  // namespace
}  // namespace rondo::undisturbed_test
