#include "rondo/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/train/schedule_state.h"

namespace rondo {
namespace {

// Returns the progress from the end of warm-up to the end of training, in [0, 1].
double decay_progress(const ScheduleOptions& options, double step) {
  const std::int64_t length = std::max<std::int64_t>(1, options.total_steps - options.warmup_steps);
  return std::clamp((step - static_cast<double>(options.warmup_steps)) / static_cast<double>(length), 0.0,
                    1.0);
}

double between(const ScheduleOptions& options, double fraction) {
  return options.learning_rate * (options.end_fraction + (1.0 - options.end_fraction) * fraction);
}

double constant_rate(const ScheduleOptions& options, double) { return options.learning_rate; }

double linear_rate(const ScheduleOptions& options, double step) {
  return between(options, 1.0 - decay_progress(options, step));
}

double cosine_rate(const ScheduleOptions& options, double step) {
  return between(options, 0.5 * (1.0 + std::cos(std::numbers::pi * decay_progress(options, step))));
}

double step_rate(const ScheduleOptions& options, double step) {
  // Tolerance, because an accumulated position may be rounded below the step of a drop.
  constexpr double kRounding = 1e-9;
  const double drops = std::floor((step - static_cast<double>(options.warmup_steps)) /
                                      static_cast<double>(options.decay_every) +
                                  kRounding);
  return options.learning_rate * std::pow(options.decay_factor, drops);
}

struct ScheduleKind {
  const char* name;
  double (*rate)(const ScheduleOptions&, double step);
};
constexpr ScheduleKind kScheduleKinds[] = {
    {"constant", constant_rate}, {"cosine", cosine_rate}, {"linear", linear_rate}, {"step", step_rate}};

// Throws UsageError for an unknown kind.
const ScheduleKind& kind_of(const ScheduleOptions& options) {
  const auto* kind =
      std::find_if(std::begin(kScheduleKinds), std::end(kScheduleKinds),
                   [&](const ScheduleKind& candidate) { return options.kind == candidate.name; });
  if (kind == std::end(kScheduleKinds)) {
    throw UsageError(str("unknown schedule '", options.kind, "'; known are: ", join(schedule_kinds(), ", ")));
  }
  return *kind;
}

double rate_at(const ScheduleOptions& options, const ScheduleKind& kind, double step) {
  const auto warmup = static_cast<double>(options.warmup_steps);
  if (step < warmup) return std::min(options.learning_rate, options.learning_rate * (step + 1) / warmup);
  return kind.rate(options, step);
}

void check(const ScheduleOptions& options) {
  if (!(options.learning_rate >= 0)) {
    throw UsageError(str("learning rate ", options.learning_rate, " must be zero or more"));
  }
  if (options.warmup_steps < 0)
    throw UsageError(str("warm-up of ", options.warmup_steps, " steps must be zero or more"));
  if (!(options.end_fraction >= 0 && options.end_fraction <= 1)) {
    throw UsageError(str("the learning rate's end fraction ", options.end_fraction, " must lie in [0, 1]"));
  }
  if (options.decay_every < 1)
    throw UsageError(str("decay every ", options.decay_every, " steps must be one or more"));
}

}  // namespace

LearningRateSchedule make_schedule(const ScheduleOptions& options) {
  check(options);
  return [options, kind = kind_of(options)](std::int64_t step) {
    return rate_at(options, kind, static_cast<double>(step));
  };
}

double scheduled_rate(const ScheduleOptions& options, double step) {
  return rate_at(options, kind_of(options), step);
}

std::vector<std::string> schedule_kinds() {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kScheduleKinds) names.emplace_back(kind.name);
  return names;
}

namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 53;

bool have_same_request(const TrainingLength& a, const TrainingLength& b) {
  return a.epochs == b.epochs && a.steps == b.steps && a.steps_per_epoch == b.steps_per_epoch;
}

// Returns whether the number of passes over the data ends the training, not a number of steps.
bool ends_by_passes(const TrainingLength& length) {
  if (length.steps_per_epoch > 0 || (length.steps && !length.epochs)) return false;
  return !length.steps || length.last_step < *length.steps;
}

}  // namespace

ScheduleState continue_schedule(const std::optional<ScheduleState>& before, const TrainingLength& now,
                                std::int64_t step) {
  ScheduleState state{
      .position = {.step = step, .done = static_cast<double>(step), .per_step = 1, .length = now.last_step},
      .length = now};
  if (!before) return state;
  // Returns the saved state unchanged, so that rates after a resume are bit-identical.
  if (have_same_request(before->length, now) && before->length.last_step == now.last_step) return *before;
  const double done = before->position.at(step);
  const std::int64_t unit = before->length.steps_per_pass;
  if (done == static_cast<double>(step) && unit == now.steps_per_pass) return state;
  state.length.steps_per_pass = unit;
  state.position.done = done;
  const std::int64_t left = now.last_step - step;
  double length = 0;
  if (have_same_request(before->length, now)) {
    length = static_cast<double>(before->position.length);
  } else if (ends_by_passes(now)) {
    length = static_cast<double>(now.epochs.value_or(1)) * static_cast<double>(unit);
  } else {
    length = done + static_cast<double>(left);
  }
  state.position.length = std::llround(std::clamp(length, done, static_cast<double>(kMostPositions)));
  if (left > 0)
    state.position.per_step = (static_cast<double>(state.position.length) - done) / static_cast<double>(left);
  return state;
}

nlohmann::json to_json(const ScheduleState& state) {
  nlohmann::json values{{"step", state.position.step},
                        {"done", state.position.done},
                        {"per_step", state.position.per_step},
                        {"length", state.position.length},
                        {"steps_per_pass", state.length.steps_per_pass},
                        {"steps_per_epoch", state.length.steps_per_epoch},
                        {"last_step", state.length.last_step}};
  if (state.length.epochs) values["epochs"] = *state.length.epochs;
  if (state.length.steps) values["steps"] = *state.length.steps;
  return values;
}

ScheduleState parse_schedule_state(const nlohmann::json& values, const std::string& what) {
  const auto count = [&](const char* key, std::int64_t least) {
    return json_integer(json_member(values, key, what), json_place(what, key), least, kMostPositions);
  };
  const auto number = [&](const char* key) {
    return json_number(json_member(values, key, what), json_place(what, key), 0,
                       static_cast<double>(kMostPositions));
  };
  const auto count_if_there = [&](const char* key) {
    return values.contains(key) ? std::optional(count(key, 1)) : std::nullopt;
  };
  ScheduleState state;
  state.position = {.step = count("step", 0),
                    .done = number("done"),
                    .per_step = number("per_step"),
                    .length = count("length", 0)};
  state.length = {.epochs = count_if_there("epochs"),
                  .steps = count_if_there("steps"),
                  .steps_per_epoch = count("steps_per_epoch", 0),
                  .steps_per_pass = count("steps_per_pass", 1),
                  .last_step = count("last_step", 0)};
  return state;
}

}  // namespace rondo
