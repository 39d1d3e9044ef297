// Strategy ddp between hosts: sizes and times of the reduced pieces.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <functional>
#include <optional>

#include "rondo/backend/collectives.h"
#include "rondo/base/time.h"
#include "rondo/parallel/grouped/grouped_strategy.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::ddp_hosts_test {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::size_t kLayers = 8;
constexpr std::uint64_t kLayerBytes = (kWidth * kWidth + kWidth) * sizeof(float);

// Linear layers, with or without units, one of which can be left out.
struct TowerImpl : torch::nn::Module {
  explicit TowerImpl(bool has_units, at::ScalarType dtype) {
    for (std::size_t i = 0; i < kLayers; ++i) {
      const std::string name = "layer" + std::to_string(i);
      if (has_units) {
        units.push_back(register_module(name, Unit<Residual>(kWidth)));
      } else {
        layers.push_back(register_module(name, torch::nn::Linear(kWidth, kWidth)));
      }
    }
    to(dtype);
    fill_parameters(*this, 5);
  }
  // Records the time at which the backward pass reaches the first layer.
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor value = x;
    for (std::size_t i = 0; i < kLayers; ++i) {
      if (i == left_out) continue;
      value = units.empty() ? torch::tanh(layers[i](value)) : units[i](value);
      if (i == 0) value.register_hook([this](const at::Tensor&) { first_layer_ns = monotonic_ns(); });
    }
    return value;
  }
  std::vector<Unit<Residual>> units;
  std::vector<torch::nn::Linear> layers;
  std::optional<std::size_t> left_out;
  std::int64_t first_layer_ns = 0;
};
TORCH_MODULE(Tower);

at::Tensor tower_loss(Tower& model, int rank, int step) {
  const auto seed = static_cast<std::uint64_t>(100 + 10 * step + rank);
  const at::ScalarType dtype = model->parameters().front().scalar_type();
  return model->forward(random_tensor({4, kWidth}, seed, dtype)).pow(2).mean();
}

// Reductions of a step over two hosts on rank 0, in order, and the time at which the backward pass reached
// the first layer.
struct Sent {
  std::vector<TraceSpan> gradients;
  std::int64_t first_layer_ns = 0;
};

Sent gradients_of_a_step(const std::string& backend, bool has_units, const DdpStrategyOptions& options) {
  Sent sent;
  run_ranks(2, backend,
            [&](Context& context) {
              const auto strategy = all_strategies().make("ddp", context, options);
              Tower model(has_units, at::kFloat);
              const auto prepared = strategy->prepare(model.ptr());
              const auto optimizer = make_adamw(prepared->module());
              for (int step = 0; step < 2; ++step) {
                optimizer->zero_grad();
                prepared->begin_step({.samples = 4});
                tower_loss(model, context.rank(), step).backward();
                prepared->finish_backward();
                prepared->step(*optimizer);
              }
              if (context.rank() == 0) {
                for (const TraceSpan& span : prepared->communication_spans()) {
                  if (span.name != "all_gather") sent.gradients.push_back(span);
                }
                sent.first_layer_ns = model->first_layer_ns;
              }
              prepared->unshard();
              barrier(context.world());
            },
            std::chrono::seconds(60), {0, 1});
  return sent;
}

std::size_t ready_before_the_first_layer(const Sent& sent) {
  return static_cast<std::size_t>(
      std::count_if(sent.gradients.begin(), sent.gradients.end(),
                    [&](const TraceSpan& span) { return span.queued_ns < sent.first_layer_ns; }));
}

class DdpBetweenHosts : public ::testing::TestWithParam<std::string> {};

TEST_P(DdpBetweenHosts, SendsFullBucketsWithoutUnits) {
  DdpStrategyOptions options;
  options.bucket_bytes = KiB(16);  // holds the weights of a layer; its bias comes first
  const Sent sent = gradients_of_a_step(GetParam(), /*has_units=*/false, options);
  ASSERT_EQ(sent.gradients.size(), kLayers);
  for (const TraceSpan& span : sent.gradients) EXPECT_EQ(*span.bytes, kLayerBytes);
  EXPECT_GE(ready_before_the_first_layer(sent), kLayers - 1);
}

TEST_P(DdpBetweenHosts, BucketsAreLargeWhereNobodySaysOtherwise) {
  EXPECT_EQ(gradients_of_a_step(GetParam(), /*has_units=*/false, {}).gradients.size(), 1U);
}

TEST_P(DdpBetweenHosts, UnitsUseTheRequestedBucketSize) {
  DdpStrategyOptions options;
  options.bucket_bytes = KiB(8);  // units of 16.5 KiB are cut ...
  EXPECT_EQ(gradients_of_a_step(GetParam(), true, options).gradients.size(), 2 * kLayers);
  options.bucket_bytes = KiB(40);  // ... and joined
  EXPECT_EQ(gradients_of_a_step(GetParam(), true, options).gradients.size(), kLayers / 2);
}

TEST_P(DdpBetweenHosts, CodecUsesRequestedBucketsDuringBackward) {
  for (const std::string codec : {"int8", "bf16_compress"}) {
    DdpStrategyOptions options;
    options.bucket_bytes = KiB(16);
    options.codec = codec;
    const Sent sent = gradients_of_a_step(GetParam(), /*has_units=*/false, options);
    ASSERT_EQ(sent.gradients.size(), kLayers) << codec;
    for (const TraceSpan& span : sent.gradients) EXPECT_EQ(*span.bytes, kLayerBytes) << codec;
    EXPECT_GE(ready_before_the_first_layer(sent), kLayers - 1) << codec;
  }
}

// Gradients are read after each backward pass or left to the next step, in windows or not.
TEST_P(DdpBetweenHosts, BucketsWithoutUnitsEqualOneProcess) {
  constexpr int steps = 4;
  Tower alone(/*has_units=*/false, at::kDouble);
  const auto reference = make_adamw(*alone);
  for (int step = 0; step < steps; ++step) {
    reference->zero_grad();
    for (int rank = 0; rank < 2; ++rank) {
      for (int pass = 0; pass < 2; ++pass) (tower_loss(alone, rank, 2 * step + pass) / 4).backward();
    }
    reference->step();
  }
  for (const bool are_read : {true, false}) {
    run_ranks(
        2, GetParam(),
        [&](Context& context) {
          DdpStrategyOptions options;
          options.bucket_bytes = KiB(40);
          const auto strategy = all_strategies().make("ddp", context, options);
          Tower model(/*has_units=*/false, at::kDouble);
          const auto prepared = strategy->prepare(model.ptr());
          const auto optimizer = make_adamw(prepared->module());
          for (int step = 0; step < steps; ++step) {
            optimizer->zero_grad();
            for (int pass = 0; pass < 2; ++pass) {
              prepared->begin_step({.samples = 8, .synchronise = pass == 1, .gradients_are_read = are_read});
              (tower_loss(model, context.rank(), 2 * step + pass) / 2).backward();
            }
            prepared->finish_backward();
            prepared->step(*optimizer);
          }
          prepared->unshard();
          EXPECT_LT(parameter_difference(*model, *alone), kTolerance) << are_read;
          barrier(context.world());
        },
        std::chrono::seconds(60), {0, 1});
  }
}

// An unused parameter delays its bucket and later ones, and keeps no gradient.
TEST_P(DdpBetweenHosts, BucketWithoutGradientIsErrorOrSkipped) {
  for (const bool may_miss : {false, true}) {
    run_ranks(2, GetParam(),
              [&](Context& context) {
                DdpStrategyOptions options;
                options.bucket_bytes = Bytes{1};
                options.find_unused_parameters = may_miss;
                const auto strategy = all_strategies().make("ddp", context, options);
                torch::nn::Sequential model(torch::nn::Linear(6, 6), torch::nn::Linear(6, 6));
                const auto prepared = strategy->prepare(model.ptr());
                prepared->begin_step({.samples = 1});
                model[0]->as<torch::nn::Linear>()->forward(at::ones({1, 6})).sum().backward();
                if (may_miss) {
                  prepared->finish_backward();
                  const auto parameters = prepared->module().parameters();
                  EXPECT_TRUE(parameters[0].grad().defined());
                  EXPECT_FALSE(parameters[2].grad().defined());
                } else {
                  expect_facts(message_of([&] { prepared->finish_backward(); }),
                               {"1.bias", "find_unused_parameters"});
                }
                barrier(context.world());
              },
              std::chrono::seconds(60), {0, 1});
  }
}

// Returns the layer that a rank leaves out in a pass; passes are counted over all steps.
using LeftOut = std::function<std::optional<std::size_t>(int rank, int pass)>;

// Checks that steps of `passes` passes on two hosts train like one process, whether gradients are read or
// not.
void expect_training_as_alone(const std::string& engine, int passes, const DdpStrategyOptions& options,
                              const LeftOut& left_out) {
  constexpr int steps = 5;
  Tower alone(/*has_units=*/true, at::kDouble);
  const auto reference = make_adamw(*alone);
  for (int step = 0; step < steps; ++step) {
    reference->zero_grad();
    for (int pass = step * passes; pass < (step + 1) * passes; ++pass) {
      for (int rank = 0; rank < 2; ++rank) {
        alone->left_out = left_out(rank, pass);
        (tower_loss(alone, rank, pass) / (2 * passes)).backward();
      }
    }
    reference->step();
  }
  for (const bool are_read : {true, false}) {
    run_ranks(2, engine,
              [&](Context& context) {
                const auto strategy = all_strategies().make("ddp", context, options);
                Tower model(/*has_units=*/true, at::kDouble);
                const auto prepared = strategy->prepare(model.ptr());
                const auto optimizer = make_adamw(prepared->module());
                for (int step = 0; step < steps; ++step) {
                  optimizer->zero_grad();
                  for (int pass = step * passes; pass < (step + 1) * passes; ++pass) {
                    prepared->begin_step({.samples = 4 * passes,
                                          .synchronise = pass + 1 == (step + 1) * passes,
                                          .gradients_are_read = are_read});
                    model->left_out = left_out(context.rank(), pass);
                    (tower_loss(model, context.rank(), pass) / passes).backward();
                  }
                  prepared->finish_backward();
                  prepared->step(*optimizer);
                }
                prepared->unshard();
                EXPECT_LT(parameter_difference(*model, *alone), kTolerance) << are_read;
                barrier(context.world());
              },
              std::chrono::seconds(60), {0, 1});
  }
}

TEST_P(DdpBetweenHosts, UnitSkippedByAStepKeepsItsUpdate) {
  DdpStrategyOptions options;
  options.find_unused_parameters = true;
  for (const bool on_both : {true, false}) {
    SCOPED_TRACE(on_both);
    expect_training_as_alone(GetParam(), /*passes=*/1, options,
                             [=](int rank, int pass) -> std::optional<std::size_t> {
                               if (pass % 2 == 0 || (rank == 0 && !on_both)) return {};
                               return 3;
                             });
  }
}

TEST_P(DdpBetweenHosts, UnitSkippedByFirstPassIsUpdatedBefore) {
  expect_training_as_alone(GetParam(), /*passes=*/2, {}, [](int, int pass) -> std::optional<std::size_t> {
    if (pass % 2 == 1) return {};
    return 3;
  });
}

// A group of ranks that is one worker of parameter servers, without the servers.
TEST_P(DdpBetweenHosts, GroupPushesGradientsAndBuffersOfOneRank) {
  std::vector<at::Tensor> means(2);
  run_ranks(2, GetParam(),
            [&](Context& context) {
              const auto strategy = all_strategies().make("ddp", context);
              torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::BatchNorm1d(3));
              GroupedModel group(strategy->prepare(model.ptr()), nullptr, context.world());
              group.begin_step({.samples = 4, .gradients_are_read = false});
              const auto seed = static_cast<std::uint64_t>(context.rank());
              model->forward(random_tensor({4, 3}, seed, at::kFloat)).pow(2).sum().backward();
              group.finish_backward();
              for (const at::Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.grad().defined());
              group.parts().flush();
              means[static_cast<std::size_t>(context.rank())] =
                  model->named_buffers()["1.running_mean"].clone();
              barrier(context.world());
            },
            std::chrono::seconds(60), {0, 1});
  EXPECT_TRUE(at::equal(means[0], means[1]));
}

INSTANTIATE_TEST_SUITE_P(Engines, DdpBetweenHosts, ::testing::Values("gloo", "hierarchical(native, gloo)"),
                         [](const auto& engine) {
                           return std::string(engine.param == "gloo" ? "gloo" : "hierarchical");
                         });

}  // namespace
}  // namespace rondo::testing::ddp_hosts_test
