#include "rondo/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Part of the way from the end of warm-up to the end of training, in [0, 1].
double decay_progress(const ScheduleOptions& options, std::int64_t step) {
  const std::int64_t length = std::max<std::int64_t>(1, options.total_steps - options.warmup_steps);
  return std::clamp(static_cast<double>(step - options.warmup_steps) / static_cast<double>(length), 0.0, 1.0);
}

double between(const ScheduleOptions& options, double fraction) {
  return options.learning_rate * (options.end_fraction + (1.0 - options.end_fraction) * fraction);
}

double constant_rate(const ScheduleOptions& options, std::int64_t) { return options.learning_rate; }

double linear_rate(const ScheduleOptions& options, std::int64_t step) {
  return between(options, 1.0 - decay_progress(options, step));
}

double cosine_rate(const ScheduleOptions& options, std::int64_t step) {
  return between(options, 0.5 * (1.0 + std::cos(std::numbers::pi * decay_progress(options, step))));
}

double step_rate(const ScheduleOptions& options, std::int64_t step) {
  const auto drops = static_cast<double>((step - options.warmup_steps) / options.decay_every);
  return options.learning_rate * std::pow(options.decay_factor, drops);
}

struct ScheduleKind {
  const char* name;
  double (*rate)(const ScheduleOptions&, std::int64_t step);
};
constexpr ScheduleKind kScheduleKinds[] = {
    {"constant", constant_rate}, {"cosine", cosine_rate}, {"linear", linear_rate}, {"step", step_rate}};

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
  const auto* kind =
      std::find_if(std::begin(kScheduleKinds), std::end(kScheduleKinds),
                   [&](const ScheduleKind& candidate) { return options.kind == candidate.name; });
  if (kind == std::end(kScheduleKinds)) {
    throw UsageError(str("unknown schedule '", options.kind, "'; known are: ", join(schedule_kinds(), ", ")));
  }
  return [options, rate = kind->rate](std::int64_t step) {
    if (step < options.warmup_steps) {
      return options.learning_rate * static_cast<double>(step + 1) /
             static_cast<double>(options.warmup_steps);
    }
    return rate(options, step);
  };
}

std::vector<std::string> schedule_kinds() {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kScheduleKinds) names.emplace_back(kind.name);
  return names;
}

}  // namespace rondo
