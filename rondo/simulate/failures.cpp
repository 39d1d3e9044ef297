#include "rondo/simulate/failures.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/random.h"

namespace rondo::simulate {

double young_interval_s(const FailureModel& model) {
  return std::sqrt(2 * model.checkpoint_s * model.job_mean_time_s());
}

double daly_interval_s(const FailureModel& model) {
  const double mean = model.job_mean_time_s();
  const double c = model.checkpoint_s;
  if (c >= 2 * mean) return mean;
  const double x = std::sqrt(c / (2 * mean));
  return std::sqrt(2 * c * mean) * (1 + x / 3 + x * x / 9) - c;
}

double expected_goodput(const FailureModel& model, double interval_s) {
  const double mean = model.job_mean_time_s();
  const double wall =
      mean * std::exp(model.restart_s / mean) * std::expm1((interval_s + model.checkpoint_s) / mean);
  return interval_s / wall;
}

double simulated_goodput(const FailureModel& model, double interval_s, double useful_s, std::uint64_t seed) {
  RandomStream random(seed, /*stream=*/29);
  const auto next_failure = [&] { return -model.job_mean_time_s() * std::log(1 - random.uniform()); };
  double wall = 0;
  double kept = 0;
  double until_failure = next_failure();
  while (kept < useful_s) {
    const double segment = interval_s + model.checkpoint_s;
    if (segment <= until_failure) {
      wall += segment;
      until_failure -= segment;
      kept += interval_s;
      continue;
    }
    wall += until_failure;
    // A restart may fail too.
    until_failure = next_failure();
    while (until_failure < model.restart_s) {
      wall += until_failure;
      until_failure = next_failure();
    }
    wall += model.restart_s;
    until_failure -= model.restart_s;
  }
  return kept / wall;
}

}  // namespace rondo::simulate
