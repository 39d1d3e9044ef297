#include "apps/bench/harness/rank.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/json_strict.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/nn/optimizers/optimizer.h"

namespace rondo::bench {
namespace {

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
std::uint64_t splitmix64(std::uint64_t value) {
  std::uint64_t z = value + 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::uint64_t first_counter(std::int64_t step, int rank, std::uint64_t stream) {
  return (static_cast<std::uint64_t>(step) << 40) | (static_cast<std::uint64_t>(rank) << 32) | (stream << 28);
}

Batch token_batch(const nlohmann::json& config, std::int64_t samples, std::int64_t step, int rank) {
  const auto length = config.at("context").get<std::int64_t>() + 1;
  const auto vocabulary = config.at("vocabulary").get<std::int64_t>();
  at::Tensor tokens = at::empty({samples, length}, at::kLong);
  auto* values = tokens.mutable_data_ptr<std::int64_t>();
  std::uint64_t counter = first_counter(step, rank, 0);
  for (std::int64_t i = 0; i < samples * length; ++i) {
    const std::uint64_t word = splitmix64(counter++);
    const bool jump = i % length == 0 || (word >> 32) % 8 == 0;
    values[i] = jump ? static_cast<std::int64_t>(word % static_cast<std::uint64_t>(vocabulary))
                     : (values[i - 1] + 1) % vocabulary;
  }
  return {.inputs = {tokens.narrow(1, 0, length - 1).contiguous()},
          .targets = {tokens.narrow(1, 1, length - 1).contiguous()},
          .samples = samples};
}

Batch image_batch(const nlohmann::json& config, std::int64_t samples, std::int64_t step, int rank) {
  auto shape = config.at("input_shape").get<std::vector<std::int64_t>>();
  shape.insert(shape.begin(), samples);
  const auto classes = config.at("classes").get<std::uint64_t>();
  at::Tensor pixels = at::empty(shape, at::kFloat);
  auto* values = pixels.mutable_data_ptr<float>();
  std::uint64_t counter = first_counter(step, rank, 0);
  for (std::int64_t i = 0; i < pixels.numel(); ++i)
    values[i] = static_cast<float>(splitmix64(counter++) >> 40) / static_cast<float>(1 << 24);
  at::Tensor labels = at::empty({samples}, at::kLong);
  counter = first_counter(step, rank, 1);
  for (std::int64_t i = 0; i < samples; ++i)
    labels.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(splitmix64(counter++) % classes);
  return {.inputs = {pixels}, .targets = {labels}, .samples = samples};
}

}  // namespace

Batch synthetic_batch(const StepCase& training, std::int64_t step, int rank) {
  const auto make_batch = training.is_gpt() ? token_batch : image_batch;
  return make_batch(training.config, training.batch_size, step, rank);
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const StepCase& training, torch::nn::Module& module) {
  return make_optimizer({.name = training.optimizer,
                         .learning_rate = training.learning_rate,
                         .weight_decay = training.optimizer == "adamw" ? 0.01 : 0.0},
                        module);
}

Model initial_model(const StepCase& training) {
  Model model = make_model(training.model, training.config);
  load_weights(training.weights, named_tensors(*model.module));
  return model;
}

void begin_worker(WorkerOptions& options, int threads) {
  options.training.config = parse_json_strict(options.config, "--config");
  at::set_num_threads(threads);
  at::Context::setFlushDenormal(true);
}

void write_initial_weights(StepCase& training, const nlohmann::json& config) {
  torch::manual_seed(1);
  const Model model = make_model(training.model, config);
  training.config = model.config;
  for (const at::Tensor& parameter : model.module->parameters())
    training.gradient_bytes += parameter.nbytes();
  write_tensors(training.weights, named_tensors(*model.module));
}

}  // namespace rondo::bench
