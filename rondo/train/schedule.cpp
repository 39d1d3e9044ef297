#include "rondo/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Part of the way from the end of warm-up to the end of training, in [0, 1].
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
  // A position that was added up may lie a rounding below the step of a drop.
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

// Throws UsageError for one that is not known.
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

}  // namespace rondo
