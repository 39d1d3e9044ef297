#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/models/model.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/train/trainer.h"
#include "tests/train/digits.h"

// Trainings of a small GPT, to compare a simulated device with the CPU.
namespace rondo::sim {

constexpr std::int64_t kSteps = 12, kSamples = 96, kJointBatch = 8, kContext = 16, kVocabulary = 64;

// The options of a training.
struct Way {
  std::string name;              // name in tests
  std::string strategy = "ddp";  // along the mesh's dimension "data"
  OptionValues options = {};     // the strategy's options
  std::string dimension = {};    // mesh dimension with all ranks; empty: "data"
  std::int64_t experts = 0;
  double dropout = 0;
  std::string checkpointed = "none";  // units that are recomputed in backward
  std::int64_t accumulate = 1;
  double clip_norm = 0;
  double learning_rate = 1e-2;
  PrecisionOptions precision = {};
  double bound = 1e-4;  // on the relative difference of each step's loss
};

inline std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

inline std::shared_ptr<const Dataset> tokens(std::uint64_t seed) {
  const at::Tensor drawn =
      at::randint(kVocabulary, {kSamples, kContext + 1}, at::detail::createCPUGenerator(seed), at::kLong);
  return std::make_shared<testing::Rows>(drawn.narrow(1, 0, kContext).contiguous(),
                                         drawn.narrow(1, 1, kContext).contiguous(), kVocabulary);
}

inline Model gpt(const Way& way) {
  torch::manual_seed(3);
  nlohmann::json config = {
      {"vocabulary", kVocabulary}, {"context", kContext}, {"layers", 2}, {"heads", 2}, {"width", 32},
      {"dropout", way.dropout}};
  if (way.experts > 0) config.update({{"experts", way.experts}, {"capacity_factor", 0.0}});
  Model model = make_model("gpt", config);
  checkpoint_activations(*model.module, way.checkpointed);
  return model;
}

inline std::unique_ptr<Strategy> strategy_of(const Way& way, const Context& context) {
  const StrategyRegistry strategies = all_strategies();
  if (way.dimension.empty()) return strategies.make(way.strategy, context, way.options);
  return strategy_on_mesh(strategies, way.strategy, context.mesh({{way.dimension, context.world_size()}}),
                          [&](const std::string& name) -> OptionValues {
                            return name == way.dimension ? way.options : OptionValues();
                          });
}

// The results of a training.
struct Figures {
  std::vector<double> losses;                // by step
  std::map<std::string, double> validation;  // with the weights after the last step
};

// The start of a part of a training, and its checkpoint.
struct Part {
  std::filesystem::path from = {};  // a checkpoint; empty: the beginning
  std::filesystem::path to = {};    // empty: no checkpoint
  std::int64_t until = kSteps;      // steps done at its end
  bool in_parts = false;            // the checkpoint's form
};

inline Figures train(const Context& context, const Way& way, c10::Device device, const Part& part = {}) {
  const std::unique_ptr<Strategy> strategy = strategy_of(way, context);
  Trainer trainer(
      *strategy, [&] { return gpt(way); }, device, way.precision);
  trainer.compile(testing::adamw(way.learning_rate));
  if (!part.from.empty()) trainer.restore(part.from);
  const auto recorder = std::make_shared<testing::Recorder>();
  const FitResult result =
      trainer.fit(tokens(5), {.steps = part.until,
                              .batch_size = kJointBatch / strategy->num_replicas_in_sync() / way.accumulate,
                              .accumulate = way.accumulate,
                              .seed = 4,
                              .clip_norm = way.clip_norm,
                              .validation = tokens(6),
                              .validation_batch_size = 16,
                              .callbacks = {recorder}});
  if (!part.to.empty()) trainer.save(part.to, {.keep = 1, .in_parts = part.in_parts});
  barrier(context.world());
  return {recorder->losses(), result.validation};
}

inline double relative(double value, double wanted) {
  return std::abs(value - wanted) / std::max(std::abs(wanted), 1e-9);
}

// Returns the largest relative difference of the training and validation losses; infinite if a step is
// missing.
inline double difference(const Figures& found, const Figures& wanted) {
  if (found.losses.size() != wanted.losses.size() || wanted.losses.empty()) return INFINITY;
  double largest = relative(found.validation.at("loss"), wanted.validation.at("loss"));
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) {
    const double one = relative(found.losses[i], wanted.losses[i]);
    largest = std::isnan(one) ? INFINITY : std::max(largest, one);
  }
  return largest;
}

inline void expect_near(const Context& context, const Figures& found, const Figures& wanted, const Way& way) {
  const double largest = difference(found, wanted);
  EXPECT_LE(largest, way.bound) << way.name << ", rank " << context.rank();
  if (context.rank() != 0 || wanted.losses.empty() || found.losses.empty()) return;
  printf("%-28s last loss %.5f, on the CPU %.5f, largest difference %.1e\n", way.name.c_str(),
         found.losses.back(), wanted.losses.back(), largest);
  fflush(stdout);  // a rank exits without flushing
}

// Compares a training on each of these devices of the rank with one on the CPU.
inline void expect_as_on_cpu(const Context& context, const Way& way,
                             std::initializer_list<c10::Device> devices) {
  const Figures wanted = train(context, way, c10::kCPU);
  for (const c10::Device device : devices) expect_near(context, train(context, way, device), wanted, way);
}

}  // namespace rondo::sim
