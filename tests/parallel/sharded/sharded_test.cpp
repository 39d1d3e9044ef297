#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>

#include <mutex>

#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/nn/unit_state.h"
#include "rondo/strategy/summon_full_params.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::sharded_test {
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
    all.push_back({strategy, "hierarchical(native, gloo)", 3, {0, 1, 2}});
  }
  all.push_back({"random", "gloo", 2});
  all.push_back({"random", "hierarchical(native, gloo)", 4, {0, 1, 0, 1}});
  return all;
}

ShardedOptions options_for(const Case&) {
  ShardedOptions options;
  options.find_unused_parameters = true;
  options.strategy_seed = 7;
  options.segment_bytes = Bytes{256};  // several segments per unit
  options.in_flight_bytes = Bytes{1024};
  return options;
}

class Sharded : public ::testing::TestWithParam<Case> {
 protected:
  void expect_equal_to_one_process(const TrainingPlan& plan, const ShardedOptions& options) {
    const std::vector<at::Tensor> expected = train_alone(plan);
    run_ranks(
        GetParam().ranks, GetParam().backend,
        [&](Context& context) {
          const auto result = train_on_ranks(context, GetParam().strategy, options, plan);
          EXPECT_LT(largest_difference(result, expected), kTolerance) << "rank " << context.rank();
        },
        std::chrono::seconds(60), GetParam().hosts);
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
  // One process's mean over the joint batch equals the mean of equal micro-batches.
  expect_equal_to_one_process(
      {.steps = 3, .accumulate = GetParam().ranks == 1 ? 3 : (GetParam().ranks == 2 ? 2 : 1)},
      options_for(GetParam()));
}

// Reducing the gradients of every pass has the same result as reducing their sum.
TEST(ReduceEveryPass, TrainsAsOneProcess) {
  const TrainingPlan plan{.steps = 4, .accumulate = 2};
  const std::vector<at::Tensor> expected = train_alone(plan);
  for (const std::string backend : {"native", "gloo"}) {
    run_ranks(2, backend, [&](Context& context) {
      ShardedOptions options;
      options.find_unused_parameters = true;
      options.strategy_seed = 3;
      options.reduce_every_pass = true;
      for (const std::string strategy : {"zero2", "zero3", "random"}) {
        EXPECT_LT(largest_difference(train_on_ranks(context, strategy, options, plan), expected), kTolerance)
            << strategy << " " << backend;
      }
    });
  }
}

TEST(SummonFullParams, GivesWholeParametersAndTakesChanges) {
  for (const std::string backend : {"native", "gloo"}) {
    run_ranks(2, backend, [](Context& context) {
      const auto strategy = all_strategies().make("zero3", context);
      Layers model;
      const at::Tensor before = model->layers[0]->linear->weight.detach().clone();
      const auto prepared = strategy->prepare(model.ptr());
      {
        const SummonFullParams full(*prepared);
        EXPECT_TRUE(at::equal(model->layers[0]->linear->weight, before));
        barrier(context.world());
        const at::NoGradGuard no_grad;
        model->layers[0]->linear->weight.copy_(before * 2);
        full.write_back();
      }
      prepared->begin_step({.samples = 1});
      const SummonFullParams again(*prepared);
      EXPECT_TRUE(at::equal(model->layers[0]->linear->weight, before * 2));
      barrier(context.world());
    });
  }
}

// Results have the same bits for any order of segments.
TEST(Schedules, NoOrderOfCommunicationChangesABit) {
  std::mutex mutex;
  std::vector<std::vector<at::Tensor>> results;
  for (const std::string schedule : {"fifo", "priority", "random"}) {
    ShardedOptions options;
    options.find_unused_parameters = true;
    options.strategy_seed = 7;
    options.segment_bytes = Bytes{256};
    options.in_flight_bytes = Bytes{schedule == "fifo" ? 0U : 512U};
    options.schedule = schedule;
    run_ranks(3, "hierarchical(native, gloo)",
              [&](Context& context) {
                auto result = train_on_ranks(context, "random", options, {.steps = 4});
                const std::lock_guard lock(mutex);
                results.push_back(std::move(result));
              },
              std::chrono::seconds(60), {0, 1, 2});
  }
  ASSERT_EQ(results.size(), 9U);
  for (const auto& result : results) EXPECT_EQ(largest_difference(result, results.front()), 0);
}

// Records the time at which each unit's forward pass begins.
class ForwardBegins final : public UnitObserver {
 public:
  void pre_forward(UnitState& unit) override { begins_ns.try_emplace(unit.name(), monotonic_ns()); }
  std::map<std::string, std::int64_t> begins_ns;
};

// At most --prefetch gathers plus the one that is needed are in flight, and they start ahead of their use.
TEST(Gathers, AreLimitedToTheRequestedNumber) {
  for (const int prefetch : {0, 1, 2}) {
    run_ranks(2, "gloo", [&](Context& context) {
      ShardedOptions options;
      options.prefetch = prefetch;
      const auto strategy = all_strategies().make("zero3", context, options);
      const auto model = std::make_shared<torch::nn::SequentialImpl>();
      for (int i = 0; i < 8; ++i) model->push_back(Unit<Residual>(6));
      model->to(at::kDouble);
      const auto prepared = strategy->prepare(model);
      const auto optimizer = make_adamw(prepared->module());
      const auto watch = std::make_shared<ForwardBegins>();
      for (UnitState* unit : units_of(*model)) unit->attach(watch);
      prepared->begin_step({.samples = 2, .gradients_are_read = true});
      model->forward(joint_batch(2, 1).input).sum().backward();
      prepared->finish_backward();
      prepared->step(*optimizer);

      std::vector<TraceSpan> gathers;
      for (const TraceSpan& span : prepared->communication_spans()) {
        if (span.name == "all_gather") gathers.push_back(span);
      }
      EXPECT_GE(gathers.size(), 8U + 7U);  // for forward, and for backward except for the last unit
      for (const TraceSpan& gather : gathers) {
        const auto under_way = std::count_if(gathers.begin(), gathers.end(), [&](const auto& other) {
          return other.queued_ns <= gather.queued_ns && gather.queued_ns < other.end_ns;
        });
        EXPECT_LE(under_way, prefetch + 1) << "unit " << gather.unit;
      }
      // Unit 5 is first gathered no later than the start of the unit `prefetch` places before it.
      const auto fifth = std::find_if(gathers.begin(), gathers.end(),
                                      [](const TraceSpan& span) { return span.unit == "5"; });
      ASSERT_NE(fifth, gathers.end());
      EXPECT_LT(fifth->queued_ns, watch->begins_ns.at(std::to_string(5 - prefetch)));
      EXPECT_GT(fifth->queued_ns, watch->begins_ns.at(std::to_string(4 - prefetch)));
      barrier(context.world());
    });
  }
}

TEST(ShardedErrors, NamesParameterUsedOutsideItsUnit) {
  run_ranks(2, "gloo", [](Context& context) {
    const auto strategy = all_strategies().make("zero3", context);
    Layers model;
    const auto prepared = strategy->prepare(model.ptr());
    const std::string message = message_of([&] {
      at::matmul(model->layers[0]->linear->weight, at::ones({7, 1}, at::kDouble));
    });
    EXPECT_NE(message.find("a parameter of unit 'layer0' (layer0.shift, ...) was used while"),
              std::string::npos)
        << message;
    barrier(context.world());
  });
}

TEST(ShardedErrors, RefusesOptimizersOfWholeParameters) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("zero1", context);
    Layers model;
    const auto prepared = strategy->prepare(model.ptr());
    torch::optim::LBFGS optimizer(prepared->module().parameters());
    // The message names the supported optimizers, and the strategy for others.
    expect_facts(message_of<UsageError>([&] { prepared->step(optimizer); }), {"optimizer", "AdamW", "ddp"});
    barrier(context.world());
  });
}

TEST(ShardedErrors, AParameterWithoutGradientIsNamed) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("zero2", context);
    Layers model;
    const auto prepared = strategy->prepare(model.ptr());
    prepared->begin_step({.samples = 2});
    const Batch batch = joint_batch(2, 1);
    mean_loss(model(batch.input), batch).backward();
    const std::string message = message_of([&] { prepared->finish_backward(); });
    EXPECT_NE(message.find("unused.weight"), std::string::npos) << message;
    EXPECT_NE(message.find("set find_unused_parameters"), std::string::npos) << message;
    barrier(context.world());
  });
}

TEST(ShardedErrors, DifferentModelsOnDifferentRanksAreNamed) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = all_strategies().make("zero3", context);
    Layers model(context.rank() == 0 ? 7 : 8);
    EXPECT_NE(message_of([&] { strategy->prepare(model.ptr()); }).find("input.weight"), std::string::npos);
  });
}

// Two replicas of the model on four ranks, each sharded over two.
TEST(Hybrid, TrainsAsOneProcess) {
  const std::vector<at::Tensor> expected = train_alone({});
  run_ranks(4, "native", [&](Context& context) {
    ShardedOptions options;
    options.find_unused_parameters = true;
    options.shard_ranks = 2;
    EXPECT_LT(largest_difference(train_on_ranks(context, "hsdp", options, {}), expected), kTolerance);
  });
}

}  // namespace
}  // namespace rondo::testing::sharded_test
