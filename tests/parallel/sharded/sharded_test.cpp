#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>

#include <mutex>

#include "rondo/base/error.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing {
namespace {

struct Case {
  std::string strategy;
  std::string backend;
  int ranks;
  std::vector<int> hosts = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.strategy << " " << c.backend << " " << c.ranks << " ranks";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string strategy : {"zero1", "zero2", "zero3", "zero3_keep", "random"}) {
    for (const int ranks : {1, 2, 3, 4}) all.push_back({strategy, "native", ranks});
    all.push_back({strategy, "gloo", 2});
    all.push_back({strategy, "hierarchical(native, gloo)", 3, {0, 1, 2}});
    all.push_back({strategy, "hierarchical(native, gloo)", 4, {0, 1, 0, 1}});
  }
  return all;
}

StrategyOptions options_for(const Case&) {
  StrategyOptions options;
  options.find_unused_parameters = true;
  options.strategy_seed = 7;
  options.block_bytes = Bytes{256};  // several blocks a unit
  options.credit_bytes = Bytes{1024};
  return options;
}

class Sharded : public ::testing::TestWithParam<Case> {
 protected:
  void expect_equal_to_one_process(const TrainingPlan& plan, const StrategyOptions& options) {
    const std::vector<at::Tensor> expected = train_alone(plan);
    run_ranks(
        GetParam().ranks, GetParam().backend,
        [&](Context& context) {
          const auto result = train_on_ranks(context, GetParam().strategy, options, plan);
          EXPECT_LT(largest_difference(result, expected), kTolerance) << "rank " << context.rank();
        },
        std::chrono::seconds(30), GetParam().hosts);
  }
};

INSTANTIATE_TEST_SUITE_P(Strategies, Sharded, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.strategy + "_" + info.param.backend.substr(0, 6) +
                                              "_" + std::to_string(info.param.ranks);
                           return name;
                         });

TEST_P(Sharded, TrainsAsOneProcessOnTheJointBatch) {
  expect_equal_to_one_process({}, options_for(GetParam()));
}

TEST_P(Sharded, ClipsByTheNormOverTheWholeModel) {
  expect_equal_to_one_process({.steps = 3, .clip_norm = 0.5}, options_for(GetParam()));
}

TEST_P(Sharded, AccumulatesMicroBatches) {
  // One process's mean over the joint batch is the mean of equal micro-batches.
  expect_equal_to_one_process(
      {.steps = 3, .accumulate = GetParam().ranks == 1 ? 3 : (GetParam().ranks == 2 ? 2 : 1)},
      options_for(GetParam()));
}

}  // namespace
}  // namespace rondo::testing
