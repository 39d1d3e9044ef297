// A training continues among other ranks: four become three, then four again.
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <latch>
#include <mutex>
#include <numeric>
#include <set>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/parallel/grouped/grouped_strategy.h"
#include "rondo/parallel/server/server_strategy.h"
#include "rondo/train/callbacks/early_stopping.h"
#include "rondo/train/callbacks/reduce_on_plateau.h"
#include "rondo/train/log_targets/mlflow/mlflow_log.h"
#include "rondo/train/trainer.h"
#include "tests/all_combinations.h"
#include "tests/errors.h"
#include "tests/parallel/sharded/layers.h"
#include "tests/temporary_directory.h"

namespace rondo::testing::rebuild_test {
namespace {

constexpr std::int64_t kSamples = 50;

// A data set that records which samples were read, by epoch.
class Watched final : public TensorDataset {
 public:
  Watched() : TensorDataset({inputs()}, {inputs().narrow(1, 0, 4).sin()}) {}
  rondo::Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override {
    const std::lock_guard lock(mutex_);
    read_[epoch].insert(read_[epoch].end(), indices.begin(), indices.end());
    return get(indices);
  }
  std::vector<std::int64_t> read_in(std::int64_t epoch) const {
    std::vector<std::int64_t> sorted = read_[epoch];
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

 private:
  static at::Tensor inputs() { return random_tensor({kSamples, 6}, 12, at::kDouble); }
  mutable std::mutex mutex_;  // protects read_
  mutable std::map<std::int64_t, std::vector<std::int64_t>> read_;
};

// Successive worlds of ranks, which are threads.
struct Worlds {
  explicit Worlds(std::string engine, bool two_hosts = false)
      : engine(std::move(engine)), two_hosts(two_hosts) {}
  Context join(std::int64_t epoch, int rank, int size) const {
    at::set_num_threads(1);
    InitOptions options;
    options.backend = engine;
    options.rank = rank;
    options.world_size = size;
    options.store = store;
    options.epoch = epoch;
    if (two_hosts) options.host = rank + 1 == size ? "last" : "others";
    options.timeout = std::chrono::minutes(5);  // ranks that join later wait while others train
    return init(options);
  }
  // Returns the context of one process, for a rank that joins later.
  static Context alone() {
    at::set_num_threads(1);
    return init(
        {.backend = "native", .rank = 0, .world_size = 1, .store = c10::make_intrusive<c10d::HashStore>()});
  }
  std::string engine;
  bool two_hosts;  // whether the last rank is on another host than the others
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
};

// Options of a process besides its strategy.
struct Choices {
  ShardedOptions units = {};
  DdpOptions buckets = {};
  PrecisionOptions precision = {};
  at::ScalarType dtype = at::kDouble;  // dtype of the model
};

struct Process {
  Process(const Context& context, const std::string& strategy_name, std::uint64_t weights,
          Choices told = {}) {
    told.units.find_unused_parameters = !told.buckets.static_graph;
    told.units.segment_bytes = Bytes{256};
    strategy = make_strategy(strategy_name, context, told.units, told.buckets);
    fill_parameters(*model, weights);
    model->to(told.dtype);
    trainer.emplace(*strategy, as_model(model.ptr()), c10::kCPU, told.precision);
    trainer->compile([](torch::nn::Module& module) { return make_adamw(module); }, make_loss("mse"));
  }
  void fit(const std::shared_ptr<const Dataset>& data, std::int64_t until, std::int64_t batch_size) {
    trainer->fit(data, {.steps = until, .batch_size = batch_size, .loader_threads = 0});
  }
  // Returns every full parameter; collective.
  std::vector<at::Tensor> weights() {
    trainer->predict(*small(trainer->model().module->parameters().front().scalar_type()),
                     {.batch_size = 1});  // gathers the parameters
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
    barrier(strategy->context().world());
    return result;
  }
  static std::shared_ptr<const Dataset> small(at::ScalarType dtype) {
    const at::Tensor input = at::zeros({1, 6}, dtype);
    return std::make_shared<TensorDataset>(Tensors{input}, Tensors{input.narrow(1, 0, 4)});
  }

  Layers model;
  std::unique_ptr<Strategy> strategy;
  std::optional<Trainer> trainer;
};

// Returns the weights of one process with the same global batches, the reference.
std::vector<at::Tensor> expected(const std::vector<std::pair<std::int64_t, std::int64_t>>& phases) {
  const auto data = std::make_shared<Watched>();
  Process process(Worlds::alone(), "one_device", 5);
  for (const auto& [until, global_batch] : phases) {
    process.fit(data, until, global_batch);
    process.trainer->rebuild(Worlds::alone());
  }
  return process.weights();
}

struct Way {
  std::string strategy;
  std::string engine;
  std::int64_t of_three;  // samples for each rank and step with three ranks; 3 with four ranks
  bool hands_over = true;
};

class Rebuild : public ::testing::TestWithParam<Way> {};

// Returns each strategy over one engine, or over both (`make equality`).
std::vector<Way> ways() {
  std::vector<Way> all{
      {"ddp", "native", 4, false}, {"zero1", "gloo", 3}, {"zero2", "native", 3}, {"zero3", "gloo", 3}};
  if (!tests::all_combinations()) return all;
  for (const Way& way : {Way{"ddp", "gloo", 3, false}, Way{"zero1", "native", 4}, Way{"zero2", "gloo", 4},
                         Way{"zero3", "native", 4}})
    all.push_back(way);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, Rebuild, ::testing::ValuesIn(ways()), [](const auto& info) {
  return info.param.strategy + "_" + info.param.engine + "_" + std::to_string(info.param.of_three);
});

// Rank 1 of four leaves within an epoch, and the others become 0, 1, 2; then a new process joins as rank 0.
TEST_P(Rebuild, FourRanksContinueAsThreeThenFour) {
  const Way way = GetParam();
  const auto data = std::make_shared<Watched>();
  const Worlds worlds(way.engine);
  std::vector<std::vector<at::Tensor>> results(5);
  set_up_mathematics();
  tests::run_rank_threads(5, [&](int thread) {
    const bool joins = thread == 4;
    const bool leaves = thread == 1;
    Process process(joins ? Worlds::alone() : worlds.join(0, thread, 4), way.strategy,
                    joins ? 77 : static_cast<std::uint64_t>(5 + thread));
    if (!joins) {
      process.fit(data, 6, 3);
      if (way.hands_over) process.trainer->hand_over({1});
      if (leaves) return;
      process.trainer->rebuild(worlds.join(1, std::max(0, thread - 1), 3));
      EXPECT_EQ(process.strategy->context().epoch(), 1);
      EXPECT_EQ(process.strategy->num_replicas_in_sync(), 3);
      EXPECT_EQ(process.trainer->position().step, 6);
      process.fit(data, 11, way.of_three);
    }
    const Context context = worlds.join(2, joins ? 0 : std::max(1, thread), 4);
    process.trainer->rebuild(context);
    EXPECT_EQ(process.trainer->position().step, 11) << "of rank " << context.rank();
    process.fit(data, 16, 3);
    results[static_cast<std::size_t>(thread)] = process.weights();
  });
  const auto one = expected({{6, 12}, {11, 3 * way.of_three}, {16, 12}});
  for (const int thread : {0, 2, 3, 4})
    EXPECT_LT(largest_difference(results[static_cast<std::size_t>(thread)], one), kTolerance) << thread;
  std::vector<std::int64_t> all(kSamples);
  std::iota(all.begin(), all.end(), 0);
  for (const std::int64_t epoch : {0, 1, 2}) EXPECT_EQ(data->read_in(epoch), all) << "epoch " << epoch;
}

// Strategies whose ranks are divided again: copies of the shards in two groups, rows and columns of a torus.
// Ranks 1 and 3 of four leave; under hsdp only they have the second half of every unit.
TEST(Rebuild, GroupOrTorusOfFourContinuesAsTwo) {
  const auto one = expected({{6, 12}, {11, 12}});
  for (const std::string strategy : {"hsdp", "tpu"}) {
    const auto data = std::make_shared<Watched>();
    const Worlds worlds("native");
    std::vector<std::vector<at::Tensor>> results(2);
    Choices told;
    told.units.shard_ranks = 2;  // for hsdp
    set_up_mathematics();
    tests::run_rank_threads(4, [&](int rank) {
      Process process(worlds.join(0, rank, 4), strategy, static_cast<std::uint64_t>(5 + rank), told);
      process.fit(data, 6, 3);
      process.trainer->hand_over({1, 3});
      if (rank % 2 == 1) return;
      process.trainer->rebuild(worlds.join(1, rank / 2, 2));
      EXPECT_EQ(process.strategy->num_replicas_in_sync(), 2);
      EXPECT_EQ(process.trainer->position().step, 6);
      process.fit(data, 11, 6);
      results[static_cast<std::size_t>(rank / 2)] = process.weights();
    });
    for (const std::vector<at::Tensor>& result : results)
      EXPECT_LT(largest_difference(result, one), 1e-9) << strategy;  // each sums in an order of its own
    std::vector<std::int64_t> all(kSamples);
    std::iota(all.begin(), all.end(), 0);
    for (const std::int64_t epoch : {0, 1}) EXPECT_EQ(data->read_in(epoch), all) << strategy << epoch;
  }
}

// Buckets, shards, files and weights in two dtypes are recreated. The result is bit-identical to that of
// ranks that start as the new world and restore a checkpoint of that moment.
struct Made {
  std::string name;
  std::string strategy;
  std::string engine;
  Choices told;
  bool offloads = false;
  bool two_hosts = false;
};

std::vector<Made> all_that_is_made() {
  const PrecisionOptions half{.level = OptLevel::O2};
  // Buckets of one or two gradients, in the order of their arrival.
  DdpOptions buckets, of_hosts;
  buckets.bucket_bytes = of_hosts.bucket_bytes = Bytes{256};
  buckets.static_graph = true;
  ShardedOptions narrow;
  narrow.mixed_precision = {
      .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat, .output_dtype = at::kFloat};
  std::vector<Made> result;
  for (const std::string engine : {"native", "gloo"}) {
    result.push_back({"ddp_" + engine, "ddp", engine, {.buckets = buckets, .precision = half}});
    for (const std::string strategy : {"zero1", "zero2", "zero3"})
      result.push_back({strategy + "_" + engine, strategy, engine, {.units = narrow}, true});
    result.push_back({"zero3_O2_" + engine, "zero3", engine, {.precision = half}, true});
  }
  result.push_back({"ddp_hosts", "ddp", "auto", {.buckets = of_hosts, .precision = half}, false, true});
  result.push_back({"zero2_hosts", "zero2", "auto", {.units = narrow}, true, true});
  for (Made& made : result) made.told.dtype = at::kFloat;
  return result;
}

class RebuildMatrix : public ::testing::TestWithParam<Made> {};
INSTANTIATE_TEST_SUITE_P(Ways, RebuildMatrix, ::testing::ValuesIn(all_that_is_made()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RebuildMatrix, GoesOnAsRanksThatRestoreDo) {
  const Made& made = GetParam();
  const TemporaryDirectory checkpoints, files, other_files;
  const at::Tensor input = random_tensor({kSamples, 6}, 12, at::kFloat);
  const auto data = std::make_shared<TensorDataset>(Tensors{input}, Tensors{input.narrow(1, 0, 4).sin()});
  std::vector<std::vector<at::Tensor>> rebuilt(2), restored(2);
  set_up_mathematics();
  const Worlds worlds(made.engine, made.two_hosts);
  Choices told = made.told;
  if (made.offloads) told.units.offload.directory = files.path();
  tests::run_rank_threads(3, [&](int rank) {
    Process process(worlds.join(0, rank, 3), made.strategy, 5, told);
    process.fit(data, 4, 4);
    process.trainer->save(checkpoints.path(), 1);
    process.trainer->hand_over({1});
    if (rank == 1) return;
    process.trainer->rebuild(worlds.join(1, rank / 2, 2));
    process.fit(data, 8, 6);
    rebuilt[static_cast<std::size_t>(rank / 2)] = process.weights();
  });
  const Worlds others(made.engine, made.two_hosts);
  if (made.offloads) told.units.offload.directory = other_files.path();
  tests::run_rank_threads(2, [&](int rank) {
    Process process(others.join(0, rank, 2), made.strategy, 77, told);
    process.trainer->restore(checkpoints.path());
    EXPECT_EQ(process.trainer->position().step, 4);
    process.fit(data, 8, 6);
    restored[static_cast<std::size_t>(rank)] = process.weights();
  });
  for (const std::size_t rank : {0U, 1U}) {
    ASSERT_EQ(rebuilt[rank].size(), restored[rank].size());
    for (std::size_t i = 0; i < rebuilt[rank].size(); ++i)
      EXPECT_TRUE(at::equal(rebuilt[rank][i], restored[rank][i])) << "parameter " << i << " of rank " << rank;
  }
}

// Missing state that only a departed rank had is named in the error, and can be restored from a checkpoint.
TEST(Rebuild, LostStateIsNamedAndRestored) {
  for (const std::string strategy : {"zero2", "zero3"}) {
    const TemporaryDirectory directory;
    const auto data = std::make_shared<Watched>();
    const Worlds worlds("gloo");
    std::vector<std::vector<at::Tensor>> results(3);
    tests::run_rank_threads(3, [&](int rank) {
      Process process(worlds.join(0, rank, 3), strategy, 5);
      process.fit(data, 3, 4);
      process.trainer->save(directory.path(), 1);
      process.fit(data, 5, 4);
      if (rank == 2) return;
      const Context context = worlds.join(1, rank, 2);
      const std::string message = message_of<DataError>([&] { process.trainer->rebuild(context); });
      expect_facts(message, {"5 steps", "'layer0.linear.weight'", "[7, 7]"});
      expect_facts(message_of<UsageError>([&] { process.fit(data, 6, 6); }), {"5 steps"});
      process.trainer->restore(directory.path());
      EXPECT_EQ(process.trainer->position().step, 3);
      process.fit(data, 8, 6);
      results[static_cast<std::size_t>(rank)] = process.weights();
    });
    const auto one = expected({{8, 12}});
    for (const int rank : {0, 1})
      EXPECT_LT(largest_difference(results[static_cast<std::size_t>(rank)], one), kTolerance) << strategy;
  }
}

// A joining process gets the states of the others' callbacks: all continue with one learning rate and stop
// after the same step.
TEST(Rebuild, CallbacksGoOnWhereTheNewestRanksAre) {
  const auto data = std::make_shared<Watched>();
  const Worlds worlds("native");
  tests::run_rank_threads(3, [&](int thread) {
    const bool joins = thread == 2;
    Process process(joins ? Worlds::alone() : worlds.join(0, thread, 2), "ddp", 5);
    // No validation is better than the first one.
    process.trainer->compile(OptimizerOptions{.name = "sgd", .learning_rate = 0.0}, make_loss("mse"));
    const auto plateau =
        std::make_shared<ReduceOnPlateau>(ReduceOnPlateau::Options{.patience = 1, .factor = 0.5});
    const auto stopping =
        std::make_shared<EarlyStopping>(EarlyStopping::Options{.patience = 4, .restore_best = true});
    const auto fit = [&](std::int64_t until) {
      return process.trainer->fit(data, {.steps = until,
                                         .batch_size = 3,
                                         .loader_threads = 0,
                                         .validation = data,
                                         .validate_every = 1,
                                         .callbacks = {plateau, stopping}});
    };
    if (!joins) {
      fit(3);
      EXPECT_EQ(plateau->learning_rate_factor(), 0.25);
    }
    process.trainer->rebuild(worlds.join(1, thread, 3));
    fit(4);
    EXPECT_EQ(plateau->learning_rate_factor(), 0.125) << thread;
    const FitResult result = fit(9);
    EXPECT_EQ(result.ended_by, "early_stopping") << thread;
    EXPECT_EQ(result.step, 5) << thread;
  });
}

// Only the writing rank has the state of its run; null states of other ranks, which may be broadcast, are
// ignored.
TEST(Rebuild, ALogGoesOnWhoeverTellsOfIt) {
  const TemporaryDirectory directory;
  const auto data = std::make_shared<Watched>();
  const Worlds worlds("native");
  tests::run_rank_threads(2, [&](int rank) {
    Process process(worlds.join(0, rank, 2), "ddp", 5);
    const auto log =
        std::make_shared<MlflowLog>(MlflowLog::Options{.directory = directory.path(), .run_name = "a"});
    const auto fit = [&](std::int64_t until) {
      process.trainer->fit(data, {.steps = until, .batch_size = 3, .loader_threads = 0, .callbacks = {log}});
    };
    fit(2);
    const nlohmann::json run = log->state();
    EXPECT_EQ(run.is_null(), rank != 0);
    log->restore(nullptr);
    EXPECT_EQ(log->state(), run);
    process.trainer->rebuild(worlds.join(1, rank, 2));
    fit(4);
    EXPECT_FALSE(log->state().is_null());
  });
}

// A rank that is a step behind, because the step was interrupted there, gets the state of the others.
TEST(Rebuild, TheNewestStateCounts) {
  const auto data = std::make_shared<Watched>();
  const Worlds worlds("native");
  std::vector<std::vector<at::Tensor>> results(2);
  tests::run_rank_threads(2, [&](int rank) {
    Process process(worlds.join(0, rank, 2), "ddp", 5);
    process.fit(data, 4, 6);
    // Rank 0 trains alone on other batches, unknown to rank 1.
    if (rank == 0) {
      process.trainer->rebuild(Worlds::alone());
      process.fit(data, 6, 5);
    }
    EXPECT_EQ(process.trainer->position().step, rank == 0 ? 6 : 4);
    process.trainer->rebuild(worlds.join(1, 1 - rank, 2));
    EXPECT_EQ(process.trainer->position().step, 6);
    results[static_cast<std::size_t>(rank)] = process.weights();
  });
  EXPECT_EQ(largest_difference(results[0], results[1]), 0);
  EXPECT_LT(largest_difference(results[0], expected({{4, 12}, {6, 5}})), kTolerance);
}

TEST(Rebuild, WhatCannotBeIsRefused) {
  const Worlds worlds("native");
  tests::run_rank_threads(2, [&](int rank) {
    Process process(worlds.join(0, rank, 2), "ddp", 5);
    for (const std::vector<int>& leaving : {std::vector<int>{2}, {0, 1}, {-1}})
      expect_facts(message_of<UsageError>([&] { process.trainer->hand_over(leaving); }), {"2 ranks"});
  });
  Process alone(Worlds::alone(), "one_device", 5);
  tests::run_rank_threads(2, [&](int rank) {
    const Context context = worlds.join(1, rank, 2);
    if (rank == 0)
      expect_facts(message_of<UsageError>([&] { alone.trainer->rebuild(context); }), {"one_device"});
    for (const char* const name : {"local_sgd", "pipeline", "tensor", "expert"}) {
      const auto strategy = all_strategies().make(name, context);
      expect_facts(message_of<UsageError>([&] { strategy->rebuild(Worlds::alone()); }),
                   {name, "ddp", "one_device", "zero3", "hsdp"});
    }
    const auto workers =
        all_strategies().make("multi_worker_mirrored", context, OptionValues{{"replicas", "2"}});
    expect_facts(message_of<UsageError>([&] { workers->rebuild(Worlds::alone()); }),
                 {"multi_worker_mirrored", "ddp"});
    // These support it, but not in a world that their options do not fit.
    ShardedOptions halves;
    halves.shard_ranks = 2;
    const auto groups = all_strategies().make("hsdp", context, halves);
    expect_facts(message_of<UsageError>([&] { groups->rebuild(Worlds::alone()); }), {"--shard-ranks 2", "1"});
    const auto torus = all_strategies().make("tpu", context, OptionValues{{"torus", "1x2"}});
    expect_facts(message_of<UsageError>([&] { torus->rebuild(Worlds::alone()); }), {"torus 1x2", "1"});
    for (const auto& strategy : {groups.get(), torus.get()})
      EXPECT_EQ(strategy->context().world_size(), 2) << strategy->name();
    barrier(context.world());
  });
  alone.fit(std::make_shared<Watched>(), 1, 5);  // unchanged
  // Strategies of one process, or of one rank on each worker.
  const auto mirrored = all_strategies().make("mirrored", Worlds::alone(), OptionValues{{"replicas", "2"}});
  expect_facts(message_of<UsageError>([&] { mirrored->rebuild(Worlds::alone()); }), {"mirrored"});
  ServerStrategy served(Worlds::alone(), server::ClusterOptions{}, control::JobSecret::make());
  expect_facts(message_of<UsageError>([&] { served.rebuild(Worlds::alone()); }), {"parameter_server"});
  GroupedStrategy grouped(Worlds::alone(), server::ClusterOptions{}, control::JobSecret::make(), GroupPlace{},
                          DdpStrategyOptions{});
  expect_facts(message_of<UsageError>([&] { grouped.rebuild(Worlds::alone()); }), {"grouped", "ddp"});
}

}  // namespace
}  // namespace rondo::testing::rebuild_test
