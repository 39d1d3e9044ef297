// Compares training through Trainer on any number of ranks, under any strategy and order of communication,
// with one process on the joint batch, for every kind of model. By default it runs a few steps of every
// strategy, on one host or, with one schedule, between hosts, and for each model 50 steps of one strategy on
// one number of ranks. RONDO_EQUALITY=all (`make equality`) runs all combinations.

#include <gtest/gtest.h>

#include "rondo/train/trainer.h"
#include "tests/all_combinations.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/strategy_told.h"
#include "tests/train/equality_models.h"

namespace rondo::testing::equality_test {
namespace {

constexpr std::int64_t kJointBatch = 12;
constexpr int kSteps = 50;
// Wrong gradients show in the second step, memory that is reused too early a little later.
constexpr int kFewSteps = 4;

struct Way {
  std::string strategy;
  std::string schedule = {};  // empty: on one host, without a queue
  std::uint64_t seed = 0;
  int shard_ranks = 0;
};

std::string describe(const Way& way) {
  return way.strategy + " " + std::to_string(way.seed) + " " +
         (way.schedule.empty() ? "on one host" : way.schedule);
}

// Returns parameters and buffers after training.
std::vector<at::Tensor> train(Context& context, const std::string& name, const Way& way, int steps) {
  const Subject subject = make_subject(name);
  ShardedOptions options;
  options.find_unused_parameters = name == "sharing";
  options.strategy_seed = options.schedule_seed = way.seed;
  if (!way.schedule.empty()) options.schedule = way.schedule;
  options.segment_bytes = Bytes{4096};
  options.in_flight_bytes = Bytes{8192};
  options.shard_ranks = way.shard_ranks;
  if (context.world_size() > 1) {
    synchronise_batch_norms(*subject.model.module, context.new_group(context.world().ranks()));
  }
  const auto strategy = make_strategy(way.strategy, context, options);
  Trainer trainer(*strategy, subject.model);
  trainer.compile([](torch::nn::Module& module) {
    return make_optimizer({.name = "adamw", .learning_rate = 1e-2}, module);
  });
  trainer.fit(subject.data, {.steps = steps, .batch_size = kJointBatch / context.world_size(), .seed = 5});
  trainer.evaluate(*subject.data);  // gathers the parameters
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : subject.model.module->parameters())
    result.push_back(tensor.detach().clone());
  for (const at::Tensor& tensor : subject.model.module->buffers()) result.push_back(tensor.clone());
  barrier(context.world());
  return result;
}

std::vector<at::Tensor> train_on(int ranks, const std::string& name, const Way& way, int steps = kSteps) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks && !way.schedule.empty(); ++rank) hosts.push_back(rank);
  std::vector<at::Tensor> of_last_rank;
  run_ranks(
      ranks, way.schedule.empty() ? "native" : "hierarchical(native, gloo)",
      [&](Context& context) {
        std::vector<at::Tensor> result = train(context, name, way, steps);
        if (context.rank() == context.world_size() - 1) of_last_rank = std::move(result);
      },
      std::chrono::seconds(60), hosts);
  return of_last_rank;
}

void expect_near(const std::vector<at::Tensor>& result, const std::vector<at::Tensor>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(result.size(), expected.size()) << what;
  double largest = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const at::Tensor difference = (result[i] - expected[i]).abs().max().to(torch::kDouble);
    largest = std::max(largest, difference.item<double>());
  }
  EXPECT_LE(largest, tolerance) << what;
}

struct Case {
  std::string model;
  int ranks;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << " " << c.ranks << " ranks";
}

class Equality : public ::testing::TestWithParam<Case> {};
class LongEquality : public ::testing::TestWithParam<Case> {};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& model : subject_names()) {
    for (const int ranks : {1, 2, 3, 4}) all.push_back({model, ranks});
  }
  return all;
}

// Returns each model with one of the numbers of ranks, or all cases.
std::vector<Case> long_cases() {
  if (tests::all_combinations()) return cases();
  std::vector<Case> chosen;
  for (const std::string& model : subject_names()) {
    chosen.push_back({model, 2 + static_cast<int>(chosen.size() % 3)});
  }
  return chosen;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return info.param.model + "_" + std::to_string(info.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Models, Equality, ::testing::ValuesIn(cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Models, LongEquality, ::testing::ValuesIn(long_cases()), name_of);

std::vector<Way> ways(int ranks) {
  std::vector<Way> all;
  for (const std::string strategy : {"ddp", "zero1", "zero2", "zero3", "zero3_keep"})
    all.push_back({strategy});
  for (const std::uint64_t seed : {1, 2, 3}) {
    if (tests::all_combinations() || seed % 3 == static_cast<std::uint64_t>(ranks) % 3)
      all.push_back({.strategy = "random", .seed = seed});
  }
  if (ranks == 4) all.push_back({.strategy = "hsdp", .shard_ranks = 2});
  return all;
}

TEST_P(Equality, OfWeightsUnderEveryStrategy) {
  const auto [model, ranks] = GetParam();
  const std::vector<at::Tensor> alone = train_on(1, model, {"one_device"}, kFewSteps);
  const std::vector<std::string> schedules{"priority", "fifo", "random"};
  std::size_t turn = static_cast<std::size_t>(ranks);
  for (Way way : ways(ranks)) {
    // With 2 ranks a strategy runs on one host, with 3 ranks between hosts, or the other way round.
    const bool on_one_host = ranks == 1 || (turn % 2 == 0 && way.strategy != "hsdp");
    const bool all = tests::all_combinations();
    if (on_one_host || (all && way.strategy != "hsdp"))
      expect_near(train_on(ranks, model, way, kFewSteps), alone, 1e-8, describe(way));
    ++turn;
    if (ranks == 1 || (on_one_host && !all)) continue;
    way.schedule = schedules[turn % schedules.size()];
    expect_near(train_on(ranks, model, way, kFewSteps), alone, 1e-8, describe(way));
  }
}

TEST_P(LongEquality, OfWeightsAfterFiftySteps) {
  const auto [model, ranks] = GetParam();
  const std::vector<at::Tensor> alone = train_on(1, model, {"one_device"});
  const std::vector<Way> all = ways(ranks);
  const std::size_t turn = std::hash<std::string>()(model) % all.size() + static_cast<std::size_t>(ranks) * 2;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!tests::all_combinations() && i != turn % all.size()) continue;
    Way way = all[i];
    if (way.strategy != "hsdp") expect_near(train_on(ranks, model, way), alone, 1e-8, describe(way));
    if (ranks == 1) continue;
    way.schedule = "priority";
    const std::vector<at::Tensor> in_priority = train_on(ranks, model, way);
    expect_near(in_priority, alone, 1e-8, describe(way));
    for (const std::string schedule : {"fifo", "random"}) {
      if (!tests::all_combinations() && schedule == "fifo") continue;
      way.schedule = schedule;
      expect_near(train_on(ranks, model, way), in_priority, 0, describe(way) + " against priority");
    }
  }
}

}  // namespace
}  // namespace rondo::testing::equality_test
