#include "rondo/train/fit_arguments.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/format/checksum.h"
#include "rondo/strategy/input_division.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

using nlohmann::json;

// Tolerance for rates, because libraries of different hosts may round differently.
constexpr double kRelativeRounding = 1e-9;

bool is_same(const json& a, const json& b) {
  if (a.is_number_float() && b.is_number_float()) {
    const double x = a.get<double>(), y = b.get<double>();
    return x == y || std::abs(x - y) <= kRelativeRounding * std::max(std::abs(x), std::abs(y));
  }
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
}

json values_of(const std::vector<CallArgument>& arguments) {
  json values = json::array();
  for (const CallArgument& argument : arguments) values.push_back(argument.value);
  return values;
}

// Returns whether all ranks have the same hash of their values.
bool have_same_hash(const json& values, const Group& group) {
  const std::string text = values.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string hash = checksum_hex(std::as_bytes(std::span(text))).substr(0, 15);
  const at::Tensor own = at::tensor({static_cast<std::int64_t>(std::stoull(hash, nullptr, 16))}, at::kLong)
                             .to(group.traits().control_device());
  for (const at::Tensor& theirs : all_gather(own, group)) {
    if (theirs.item<std::int64_t>() != own.item<std::int64_t>()) return false;
  }
  return true;
}

// Returns whether the value changes at each computation on some rank. Collective.
bool changes(const CallArgument& argument, const Group& group) {
  const bool changed = argument.again && argument.again() != argument.value;
  const std::vector<json> said = all_gather_object(changed, group);
  return std::any_of(said.begin(), said.end(), [](const json& value) { return value.get<bool>(); });
}

std::string ranks_text(const std::vector<int>& ranks) {
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "));
}

// Returns the message "epochs is 3 on rank 0, 4 on ranks 1, 2".
std::string difference(const std::string& name, const std::vector<json>& by_rank) {
  std::map<std::string, std::vector<int>> ranks;
  std::vector<std::string> in_order;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const json& value = by_rank[rank];
    const std::string text = value.is_string() ? value.get<std::string>()
                             : value.is_null() ? "none"
                                               : value.dump();
    if (!ranks.contains(text)) in_order.push_back(text);
    ranks[text].push_back(static_cast<int>(rank));
  }
  std::vector<std::string> parts;
  for (const std::string& text : in_order) parts.push_back(str(text, " on ", ranks_text(ranks.at(text))));
  return str(name, " is ", join(parts, ", "));
}

}  // namespace

void verify_same_arguments(const Context& context, const std::string& call,
                           const std::vector<CallArgument>& arguments) {
  if (context.world_size() == 1) return;
  const Group& group = context.world();
  const json own = values_of(arguments);
  if (have_same_hash(own, group)) return;
  const std::vector<json> all = all_gather_object(own, group);
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::vector<json> by_rank;
    for (const json& values : all) by_rank.push_back(values.at(i));
    const bool same = std::all_of(by_rank.begin(), by_rank.end(),
                                  [&](const json& value) { return is_same(value, by_rank.front()); });
    if (same || changes(arguments[i], group)) continue;
    differences.push_back(difference(arguments[i].name, by_rank));
  }
  if (differences.empty()) return;
  throw AgreedError(str(call, " was called with different arguments: ", join(differences, "; "),
                        ". All ranks must give the same ones"),
                    ExitCode::usage, context.rank() == 0);
}

namespace {

void add_tensors(Checksum& checksum, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const std::string shape = rondo::str(tensor.scalar_type(), " ", tensor.sizes());
    checksum.update(std::as_bytes(std::span(shape)));
    const at::Tensor values = tensor.to_dense().cpu().contiguous();
    checksum.update({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
}

// Returns the text of a hash of three samples. Training reports samples that cannot be read.
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

// Returns the rates at a few steps of a schedule given as a function.
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

// Returns whether each rank has all samples; with division by file a rank needs only its own files.
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
