#include <gtest/gtest.h>

#include <limits>

#include "rondo/base/error.h"
#include "rondo/precision/grad_scaler.h"
#include "rondo/strategy/state_dict.h"
#include "rondo/strategy/summon_full_params.h"
#include "tests/parallel/sharded/layers.h"

// Units that compute and communicate in other dtypes than those of their weights. The models here are
// float64, so float32 is the low-precision dtype.
namespace rondo::testing::mixed_precision_test {
namespace {

const MixedPrecisionPolicy kNarrow{
    .param_dtype = at::kFloat, .reduce_dtype = at::kDouble, .output_dtype = at::kDouble};
constexpr double kNarrowTolerance = 2e-5;  // for weights of about 0.3 after 8 steps

ShardedOptions options_with(const MixedPrecisionPolicy& policy) {
  ShardedOptions options;
  options.find_unused_parameters = true;
  options.strategy_seed = 7;
  options.segment_bytes = Bytes{256};
  options.mixed_precision = policy;
  return options;
}

// Returns the master weights after training, on every rank.
std::vector<at::Tensor> train_masters(Context& context, const std::string& strategy_name,
                                      const ShardedOptions& options, const TrainingPlan& plan) {
  const auto strategy = all_strategies().make(strategy_name, context, options);
  Layers model;
  const auto prepared = strategy->prepare(model.ptr());
  const auto optimizer = make_adamw(prepared->module());
  train_steps(context, *prepared, model, *optimizer, plan);
  std::vector<at::Tensor> result;
  for (const ModelTensor& tensor : full_state_dict(*prepared)) result.push_back(tensor.tensor.clone());
  barrier(context.world());
  return result;
}

std::vector<at::Tensor> train_masters_alone(const MixedPrecisionPolicy& policy, const TrainingPlan& plan) {
  std::vector<at::Tensor> result;
  run_ranks(1, "native",
            [&](Context& context) { result = train_masters(context, "zero3", options_with(policy), plan); });
  return result;
}

TEST(MixedPrecision, RanksEqualOneProcessWithSameCasts) {
  for (const TrainingPlan& plan :
       {TrainingPlan{}, TrainingPlan{.steps = 4, .accumulate = 2, .clip_norm = 0.5}}) {
    const std::vector<at::Tensor> expected = train_masters_alone(kNarrow, plan);
    EXPECT_EQ(expected.front().scalar_type(), at::kDouble);
    // Checks that something was computed in float32.
    std::vector<at::Tensor> exact = train_masters_alone({}, plan);
    EXPECT_GT(largest_difference(expected, exact), 1e-9);
    EXPECT_LT(largest_difference(expected, exact), kNarrowTolerance);
    for (const std::string backend : {"native", "gloo"}) {
      for (const std::string strategy : {"zero1", "zero2", "zero3", "zero3_keep", "random"}) {
        run_ranks(2, backend, [&](Context& context) {
          const auto result = train_masters(context, strategy, options_with(kNarrow), plan);
          EXPECT_LT(largest_difference(result, expected), kNarrowTolerance) << strategy << " " << backend;
        });
      }
    }
  }
}

// Gradients of a unit are reduced in param_dtype if no reduce_dtype is given.
TEST(MixedPrecision, PolicyPartsAreOptional) {
  const std::vector<MixedPrecisionPolicy> policies = {
      {.param_dtype = at::kFloat, .output_dtype = at::kDouble},
      {.reduce_dtype = at::kFloat},
      {.param_dtype = at::kFloat, .reduce_dtype = at::kHalf, .output_dtype = at::kDouble}};
  for (const MixedPrecisionPolicy& policy : policies) {
    const double tolerance = policy.reduce_dtype == at::kHalf ? 0.02 : kNarrowTolerance;
    const std::vector<at::Tensor> expected = train_masters_alone(policy, {.steps = 3});
    for (const std::string backend : {"native", "gloo"}) {
      run_ranks(2, backend, [&](Context& context) {
        const auto result = train_masters(context, "random", options_with(policy), {.steps = 3});
        EXPECT_LT(largest_difference(result, expected), tolerance) << to_text(policy) << " " << backend;
      });
    }
  }
}

TEST(MixedPrecision, WeightsStayWideAndTheModelIsNarrow) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy =
        all_strategies().make("zero3", context, options_with({.param_dtype = at::kBFloat16}));
    Layers model;
    const at::Tensor before = model->layers[0]->linear->weight.detach().clone();
    const auto prepared = strategy->prepare(model.ptr());
    EXPECT_TRUE(prepared->parts().has_fp32_master_weights());
    EXPECT_EQ(model->layers[0]->linear->weight.scalar_type(), at::kBFloat16);
    EXPECT_EQ(prepared->module().parameters().front().scalar_type(), at::kDouble);
    prepared->begin_step({.samples = 1});
    // A unit casts its inputs, and without output_dtype does not cast its outputs.
    EXPECT_EQ(model->layers[0](at::zeros({1, 7}, at::kDouble)).scalar_type(), at::kBFloat16);
    prepared->finish_backward();
    {
      const SummonFullParams full(*prepared);
      EXPECT_TRUE(at::equal(model->layers[0]->linear->weight, before.to(at::kBFloat16)));
      full.write_back();  // nothing was changed: master weights are not rounded
    }
    for (const ModelTensor& tensor : full_state_dict(*prepared)) {
      if (tensor.name != "layer0.linear.weight") continue;
      EXPECT_TRUE(at::equal(tensor.tensor, before));
    }
    barrier(context.world());
  });
}

// Returns the values that this rank's optimizer updates.
at::Tensor optimized_values(PreparedModel& model) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : model.module().parameters()) parts.push_back(part.detach().flatten());
  return at::cat(parts);
}

// Only one rank's gradient is infinite, and only in the shard of one rank.
TEST(MixedPrecision, AllSkipInfiniteGradientOfOneRank) {
  for (const std::string backend : {"native", "gloo"}) {
    run_ranks(2, backend, [&](Context& context) {
      const auto strategy = all_strategies().make(
          "zero3", context,
          options_with({.param_dtype = at::kFloat, .reduce_dtype = at::kHalf, .output_dtype = at::kDouble}));
      Layers model;
      const auto prepared = strategy->prepare(model.ptr());
      const auto optimizer = make_adamw(prepared->module());
      GradScaler scaler({.init_scale = 8}, context.world());
      for (const bool bad : {false, true, false}) {
        const at::Tensor before = optimized_values(*prepared);
        optimizer->zero_grad();
        prepared->begin_step({.samples = 6, .gradients_are_read = true});
        const Batch batch = rows(joint_batch(12, 3), context.rank() * 6, 6);
        const at::Tensor output = prepared->cast_output(model(prepared->cast_input(batch.input)));
        at::Tensor loss = scaler.scale(mean_loss(output, batch));
        if (bad && context.rank() == 1) loss = loss * std::numeric_limits<double>::infinity();
        loss.backward();
        prepared->finish_backward();
        const bool stepped = scaler.step(*optimizer, [&] { prepared->step(*optimizer); });
        scaler.update();
        EXPECT_EQ(stepped, !bad) << "rank " << context.rank();
        EXPECT_EQ(at::equal(optimized_values(*prepared), before), bad);
      }
      EXPECT_EQ(scaler.get_scale(), 4);
      barrier(context.world());
    });
  }
}

// Only one element of one gradient overflows, so that after the reduction only one rank's shard has it.
TEST(MixedPrecision, AllSkipOverflowInOneShard) {
  for (const std::string backend : {"native", "gloo"}) {
    for (const std::string strategy_name : {"zero1", "zero2", "zero3"}) {
      run_ranks(2, backend, [&](Context& context) {
        const auto strategy = all_strategies().make(strategy_name, context, options_with({}));
        Layers model;
        const auto prepared = strategy->prepare(model.ptr());
        const auto optimizer = make_adamw(prepared->module());
        GradScaler scaler({.init_scale = 8}, context.world());
        bool bad = false;
        model->output->bias.register_hook([&](const at::Tensor& gradient) {
          at::Tensor changed = gradient.clone();
          if (bad && context.rank() == 1) changed[0] = std::numeric_limits<double>::infinity();
          return changed;
        });
        for (const bool overflows : {false, true, false}) {
          bad = overflows;
          const at::Tensor before = optimized_values(*prepared);
          optimizer->zero_grad();
          prepared->begin_step({.samples = 6, .gradients_are_read = true});
          const Batch batch = my_rows(joint_batch(12, 3), context.world());
          scaler.scale(mean_loss(model(batch.input), batch)).backward();
          prepared->finish_backward();
          at::Tensor ranks_that_see_it = at::zeros({1});
          for (const at::Tensor& part : prepared->module().parameters()) {
            if (part.grad().defined() && !part.grad().isfinite().all().item<bool>()) ranks_that_see_it += 1;
          }
          all_reduce(ranks_that_see_it, context.world(), ReduceOp::SUM);
          EXPECT_EQ(ranks_that_see_it.item<float>(), overflows ? 1 : 0) << strategy_name << " " << backend;
          const bool stepped = scaler.step(*optimizer, [&] { prepared->step(*optimizer); });
          scaler.update();
          EXPECT_EQ(stepped, !overflows) << "rank " << context.rank() << " " << strategy_name;
          EXPECT_EQ(at::equal(optimized_values(*prepared), before), overflows);
        }
        EXPECT_EQ(scaler.get_scale(), 4);
        barrier(context.world());
      });
    }
  }
}

TEST(MixedPrecision, StrategiesWithoutUnitsRefuseAPolicy) {
  run_ranks(2, "native", [](Context& context) {
    const std::string message =
        message_of([&] { all_strategies().make("ddp", context, options_with(kNarrow)); });
    EXPECT_NE(message.find("strategy ddp takes rondo::DdpStrategyOptions, not rondo::ShardedOptions"),
              std::string::npos)
        << message;
    const auto strategy = all_strategies().make("zero1", context, options_with(kNarrow));
    EXPECT_NE(message_of([&] {
                strategy->set_mixed_precision({.param_dtype = at::kHalf});
              }).find("use one of them"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace rondo::testing::mixed_precision_test
