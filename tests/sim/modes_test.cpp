// Precision, checkpoints and predictions on simulated devices, compared with the CPU.
#include <gtest/gtest.h>

#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::modes_test {
namespace {

PrecisionOptions precision(OptLevel level, at::ScalarType dtype) {
  PrecisionOptions options{.level = level, .dtype = dtype};
  // With 65536 the first steps would be skipped.
  if (dtype == at::kHalf) options.loss_scale = LossScale{.dynamic = true, .value = 1024};
  return options;
}

// Bounds: a rounding error of bfloat16 is 2^-8, of float16 2^-11, and means over tokens average most of it
// out.
std::vector<Way> precisions() {
  std::vector<Way> all = {
      {.name = "bfloat16_O1",
       .strategy = "zero2",
       .precision = precision(OptLevel::O1, at::kBFloat16),
       .bound = 3e-3},
      {.name = "bfloat16_O2",
       .strategy = "zero2",
       .precision = precision(OptLevel::O2, at::kBFloat16),
       .bound = 3e-3},
      {.name = "bfloat16_O3",
       .strategy = "zero2",
       .precision = precision(OptLevel::O3, at::kBFloat16),
       .bound = 2e-2},
      {.name = "float16_O1",
       .strategy = "ddp",
       .precision = precision(OptLevel::O1, at::kHalf),
       .bound = 3e-3},
      {.name = "float16_O2",
       .strategy = "ddp",
       .precision = precision(OptLevel::O2, at::kHalf),
       .bound = 3e-3},
      {.name = "units_in_bfloat16",
       .strategy = "zero3",
       .options = {{"mixed-precision", "param=bfloat16,reduce=float32"}},
       .bound = 3e-3},
  };
  // Rounding errors grow with the size of steps.
  for (Way& way : all) way.learning_rate = 1e-3;
  return all;
}

class EachPrecision : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(OnSim, EachPrecision, ::testing::ValuesIn(precisions()),
                         [](const ::testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST_P(EachPrecision, GivesTheLossesOfTheCpu) {
  EXPECT_EQ(
      run_ranks(2, [](Context& context) { expect_as_on_cpu(context, GetParam(), {device(context.rank())}); }),
      0);
}

Figures joined(Figures first, const Figures& second) {
  first.losses.insert(first.losses.end(), second.losses.begin(), second.losses.end());
  first.validation = second.validation;
  return first;
}

// Runs half of a training on one device, the rest on another, from a checkpoint of either form.
void expect_resumed(const Way& way, bool in_parts) {
  const TemporaryDirectory directory;
  const auto body = [&](Context& context) {
    const Figures whole = train(context, way, c10::kCPU);
    const c10::Device cpu = c10::kCPU, sim = device(context.rank());
    int number = 0;
    for (const auto& [first, second] :
         std::vector<std::pair<c10::Device, c10::Device>>{{sim, sim}, {sim, cpu}, {cpu, sim}}) {
      const std::filesystem::path place = directory.path() / std::to_string(number++);
      const Figures before =
          train(context, way, first, {.to = place, .until = kSteps / 2, .in_parts = in_parts});
      Way named = way;
      named.name += "_" + first.str() + "_" + second.str();
      expect_near(context, joined(before, train(context, way, second, {.from = place})), whole, named);
    }
  };
  EXPECT_EQ(run_ranks(way.strategy == "one_device" ? 1 : 2, body), 0);
}

TEST(SimCheckpoints, GoOnOnTheOtherKindOfDevice) {
  expect_resumed({.name = "whole", .strategy = "one_device", .dropout = 0.2}, /*in_parts=*/false);
}

TEST(SimCheckpoints, InPartsRestoreOnTheOtherDeviceType) {
  expect_resumed({.name = "parts", .strategy = "zero2"}, /*in_parts=*/true);
}

TEST(SimEvaluation, PredictionsAreThoseOfTheCpu) {
  EXPECT_EQ(run_ranks(2,
                      [](Context& context) {
                        std::vector<at::Tensor> outputs;
                        for (const c10::Device where : {c10::Device(c10::kCPU), device(context.rank())}) {
                          const Way way;
                          const auto strategy = strategy_of(way, context);
                          Trainer trainer(
                              *strategy, [&] { return gpt(way); }, where);
                          trainer.compile(testing::adamw());
                          outputs.push_back(trainer.predict(*tokens(6), {.batch_size = 16}).cpu());
                        }
                        EXPECT_TRUE(at::allclose(outputs[1], outputs[0], 1e-4, 1e-5));
                      }),
            0);
}

}  // namespace
}  // namespace rondo::sim::modes_test
