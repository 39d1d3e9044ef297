#include "rondo/train/fit_arguments.h"

#include <torch/types.h>

#include <algorithm>
#include <span>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/format/checksum.h"
#include "rondo/strategy/input_division.h"

namespace rondo {
namespace {

using nlohmann::json;

void add_tensors(Checksum& checksum, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const std::string shape = rondo::str(tensor.scalar_type(), " ", tensor.sizes());
    checksum.update(std::as_bytes(std::span(shape)));
    const at::Tensor values = tensor.to_dense().cpu().contiguous();
    checksum.update({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
}

// Text of a hash of three samples. One that cannot be read is the training's to report.
json sample_hash(const Dataset& data, c10::Device device) {
  if (data.size() == 0) return "empty";
  const at::Tensor generators = random_state(device);
  Checksum checksum;
  try {
    for (const std::int64_t index : {std::int64_t{0}, data.size() / 2, data.size() - 1}) {
      const Batch sample = data.get(std::span(&index, 1));
      add_tensors(checksum, sample.inputs);
      add_tensors(checksum, sample.targets);
    }
  } catch (const std::exception&) {
    set_random_state(generators, device);
    return "unreadable";
  }
  set_random_state(generators, device);
  return checksum.hex().substr(0, 8);
}

template <class Number>
json optional_number(const std::optional<Number>& number) {
  return number ? json(*number) : json();
}

// Rates at a few steps of a schedule that is any function.
json rates_of(const LearningRateSchedule& schedule) {
  json rates = json::array();
  for (const std::int64_t step : {0, 1, 10, 100, 1000}) rates.push_back(schedule(step));
  return rates;
}

json described(const ScheduleOptions& schedule) {
  return {schedule.kind,         schedule.learning_rate, schedule.warmup_steps, schedule.total_steps,
          schedule.end_fraction, schedule.decay_every,   schedule.decay_factor};
}

json schedule_of(const FitOptions& options) {
  if (options.schedule) return rates_of(options.schedule);
  return options.named_schedule ? described(*options.named_schedule) : json();
}

json names_of(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  json names = json::array();
  for (const auto& callback : callbacks) names.push_back(callback->name());
  return names;
}

// By file each rank needs no other files than its own.
bool all_have_all_samples(const Dataset& data, const FitOptions& options, const Strategy& strategy) {
  if (options.input_sharding == AutoShard::off || options.input_sharding == AutoShard::file) return false;
  return !divide_input(data, options.input_sharding, strategy.input_shard().count).by_file;
}

}  // namespace

std::vector<CallArgument> fit_arguments(const Dataset& data, const FitOptions& options,
                                        const Strategy& strategy, c10::Device device) {
  std::vector<CallArgument> arguments;
  const auto add = [&](const char* name, json value) {
    arguments.push_back({.name = name, .value = std::move(value)});
  };
  const auto add_samples = [&](const char* name, const Dataset& samples) {
    const auto hash = [&samples, device] { return sample_hash(samples, device); };
    arguments.push_back({.name = name, .value = hash(), .again = hash});
  };
  add("the number of training samples", data.size());
  if (all_have_all_samples(data, options, strategy)) {
    add_samples("the hash of training samples", data);
  } else {
    add("the hash of training samples", json());
  }
  add("the number of validation samples", options.validation ? json(options.validation->size()) : json());
  if (options.validation) {
    add_samples("the hash of validation samples", *options.validation);
  } else {
    add("the hash of validation samples", json());
  }
  add("epochs", optional_number(options.epochs));
  add("steps", optional_number(options.steps));
  add("steps_per_epoch", options.steps_per_epoch);
  add("initial_epoch", options.initial_epoch);
  add("initial_step", options.initial_step);
  add("batch_size", options.batch_size);
  add("accumulate", options.accumulate);
  add("shuffle", options.shuffle);
  add("seed", options.seed);
  add("input_sharding", static_cast<int>(options.input_sharding));
  add("the learning-rate schedule", schedule_of(options));
  add("clip_norm", options.clip_norm);
  add("validate_every", options.validate_every);
  add("validation_batch_size", options.validation_batch_size);
  add("validation_batches", options.validation_batches);
  add("the list of callbacks", names_of(options.callbacks));
  add("whether stop_requested is given", static_cast<bool>(options.stop_requested));
  return arguments;
}

}  // namespace rondo
