#include "rondo/train/training_values.h"

#include <cmath>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/train/epoch_parts.h"

namespace rondo {
namespace {

using nlohmann::json;

// Above any real number of steps, and small enough that sums do not overflow.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;
constexpr std::int64_t kMostRanks = 1 << 20;

// A reader of a JSON object of values, whose errors name the location of the object.
class ValuesReader {
 public:
  ValuesReader(const json& values, std::string what) : values_(values), what_(std::move(what)) {
    if (!values.is_object()) throw DataError(str(what_, ": expected an object"));
  }

  bool has(const char* key) const { return values_.contains(key); }
  std::int64_t count(const char* key) const { return count(at(key), key); }
  std::int64_t count_or(const char* key, std::int64_t otherwise) const {
    return values_.contains(key) ? count(values_[key], key) : otherwise;
  }
  double duration(const char* key) const {
    const json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
      fail(key, value, "a number of seconds");
    return value.get<double>();
  }
  bool flag_or(const char* key, bool otherwise) const {
    if (!values_.contains(key)) return otherwise;
    if (!values_[key].is_boolean()) fail(key, values_[key], "true or false");
    return values_[key].get<bool>();
  }
  json object_or_empty(const char* key) const {
    if (!values_.contains(key)) return json::object();
    if (!values_[key].is_object()) fail(key, values_[key], "an object");
    return values_[key];
  }
  const json& at(const char* key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) throw DataError(str(what_, ": \"", key, "\" is missing"));
    return *found;
  }
  [[noreturn]] void fail(const std::string& key, const json& value, const char* expected) const {
    throw DataError(str(what_, ": \"", key, "\" is ", value.dump().substr(0, 40), ", expected ", expected));
  }

 private:
  std::int64_t count(const json& value, const char* key) const {
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= kMostSteps;
    if (!fits) fail(key, value, "a whole number of at least 0");
    return value.get<std::int64_t>();
  }

  const json& values_;
  std::string what_;
};

// JSON has null for non-finite numbers.
double figure_of(const ValuesReader& reader, const std::string& key, const json& value) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) reader.fail(key, value, "a number or null");
  return value.get<double>();
}

json to_json(const LastFigures& last) {
  json document{{"validation", last.validation},
                {"validation_due", last.validation_due},
                {"loss_known", last.loss.has_value()},
                {"loss", last.loss.value_or(0)}};
  if (last.validated_step >= 0) document["validated_step"] = last.validated_step;
  document["epoch_sums"] = {{"epoch", last.epoch.epoch},
                            {"loss", last.epoch.loss},
                            {"predictions", last.epoch.predictions},
                            {"samples", last.epoch.samples}};
  return document;
}

LastFigures parse_last(const json& values, const std::string& what) {
  LastFigures last;
  if (values.empty()) return last;  // earlier versions do not save it
  const ValuesReader reader(values, what);
  if (reader.flag_or("loss_known", false)) last.loss = figure_of(reader, "loss", reader.at("loss"));
  const json validation = reader.object_or_empty("validation");
  for (const auto& [name, value] : validation.items()) last.validation[name] = figure_of(reader, name, value);
  last.validated_step = reader.count_or("validated_step", -1);
  last.validation_due = reader.flag_or("validation_due", false);
  const json sums = reader.object_or_empty("epoch_sums");
  if (sums.empty()) return last;  // likewise
  const ValuesReader of_epoch(sums, str(what, ", \"epoch_sums\""));
  last.epoch = {.epoch = of_epoch.count("epoch"),
                .loss = figure_of(of_epoch, "loss", of_epoch.at("loss")),
                .predictions = of_epoch.count("predictions"),
                .samples = of_epoch.count("samples")};
  return last;
}

// Checks values that only other programs read: the world size and the model.
void check_for_readers(const ValuesReader& reader, const std::string& what) {
  if (reader.has("world_size"))
    json_integer(reader.at("world_size"), json_place(what, "world_size"), 1, kMostRanks);
  if (!reader.has("model")) return;
  const std::string of_model = json_place(what, "model");
  json_text(json_member(reader.at("model"), "name", of_model), json_place(of_model, "name"));
  // A custom model may have no configuration.
  const json& config = json_member(reader.at("model"), "config", of_model);
  if (!config.is_null()) json_object(config, json_place(of_model, "config"));
}

}  // namespace

json to_json(const TrainingValues& values) {
  json document{{"step", values.position.step},   {"epoch", values.position.epoch},
                {"batch", values.position.batch}, {"elapsed_s", values.position.elapsed_s},
                {"last", to_json(values.last)},   {"sampling", values.sampling},
                {"precision", values.precision},  {"callbacks", values.callbacks}};
  if (values.schedule) document["schedule"] = to_json(*values.schedule);
  return document;
}

TrainingValues parse_training_values(const json& values, const std::string& what) {
  const ValuesReader reader(values, what);
  check_for_readers(reader, what);
  TrainingValues result;
  result.position = {.step = reader.count("step"),
                     .epoch = reader.count("epoch"),
                     .batch = reader.count("batch"),
                     .elapsed_s = reader.duration("elapsed_s")};
  const json last = reader.object_or_empty("last");
  result.last = parse_last(last, str(what, ", \"last\""));
  result.sampling = reader.object_or_empty("sampling");
  if (reader.has("schedule"))
    result.schedule = parse_schedule_state(values.at("schedule"), json_place(what, "schedule"));
  result.precision = reader.object_or_empty("precision");
  result.callbacks = reader.object_or_empty("callbacks");
  if (!result.sampling.empty()) {
    const ValuesReader sampling(result.sampling, str(what, ", \"sampling\""));
    for (const char* key : {"samples", "global_batch"}) {
      if (sampling.count(key) < 1) sampling.fail(key, result.sampling[key], "1 or more");
    }
    // Their product, the samples of the epoch so far, must not overflow.
    if (result.position.batch > kMostSteps / sampling.count("global_batch"))
      sampling.fail("global_batch", result.sampling["global_batch"], "less, with so many batches");
    if (sampling.count_or("done_before", 0) > sampling.count("samples"))
      sampling.fail("done_before", result.sampling["done_before"], "at most \"samples\"");
    sampling.count_or("readers_by_file", 0);
    parts_done(result.sampling, str(what, ", \"sampling\""));
  }
  return result;
}

}  // namespace rondo
