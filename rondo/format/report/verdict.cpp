#include "rondo/format/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "rondo/base/arithmetic.h"
#include "rondo/base/text.h"
#include "rondo/format/report/curves.h"
#include "rondo/format/report/stragglers.h"

namespace rondo {
namespace {

using Tone = Finding::Tone;

// A validation loss that is this much above its best is worse, not noise.
constexpr double kWorse = 0.02;
// Shares of the step time that wait for communication.
constexpr double kFewWaits = 0.05;
constexpr double kManyWaits = 0.2;
// Relative drop of the throughput from the first to the last quarter that is reported.
constexpr double kSlower = 0.2;
constexpr std::size_t kStepsForARate = 40;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// Returns a large number as an integer with separators: "28,402".
std::string grouped(double value) {
  if (std::abs(value) < 1000 || std::abs(value) > 1e15) return number(value);
  std::string digits = str(static_cast<std::int64_t>(std::llround(value)));
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", 100 * share);
  return str(share >= 0.095 ? str(std::lround(100 * share)) : std::string(text), " %");
}

std::string seconds(double value) {
  const std::int64_t whole = std::llround(value);
  if (value < 10) return number(std::round(value * 100) / 100) + " s";
  if (whole < 60) return str(whole, " s");
  if (whole < 3600) return str(whole / 60, " min ", whole % 60, " s");
  return str(whole / 3600, " h ", whole / 60 % 60, " min");
}

std::string counted_steps(std::int64_t steps) {
  return str(grouped(static_cast<double>(steps)), steps == 1 ? " step" : " steps");
}

Finding progress(const RunData& run) {
  std::int64_t step = 0;
  double elapsed_s = 0;
  for (const MetricsRow& row : run.rows) {
    step = std::max(step, row.step);
    elapsed_s = std::max(elapsed_s, row.elapsed_s);
  }
  const std::int64_t total = run.starts.empty() ? 0 : run.starts.back().total_steps;
  const std::string at = str("step ", grouped(static_cast<double>(step)),
                             total > 0 ? " of " + grouped(static_cast<double>(total)) : std::string());
  const std::string time = elapsed_s > 0 ? " in " + seconds(elapsed_s) : "";
  if (run.is_running) return {step == 0 ? "Running: no step has ended yet." : str("Running: ", at, ".")};
  if (step == 0) return {"No step was recorded.", Tone::bad};
  if (total > 0 && step < total) return {str("Ended at ", at, time, "."), Tone::bad};
  if (total > 0) return {str("Finished: ", counted_steps(step), time, "."), Tone::good};
  return {str(counted_steps(step), time, ".")};
}

// Returns the mean of the last tenth, which noise of single steps does not change much.
double end_of(const std::vector<CurvePoint>& points) {
  const std::size_t count = std::max<std::size_t>(1, points.size() / 10);
  double sum = 0;
  for (std::size_t i = points.size() - count; i < points.size(); ++i) sum += points[i].value;
  return sum / static_cast<double>(count);
}

std::optional<Finding> training_loss(const RunData& run) {
  for (const MetricsRow& row : run.rows) {
    const auto& loss = row.largest_loss ? row.largest_loss : row.loss;
    if (!loss || std::isfinite(*loss)) continue;
    const bool is_one = row.steps.value_or(1) == 1;
    return Finding{str("The training loss is NaN or infinite ", is_one ? "at step " : "at or before step ",
                       grouped(static_cast<double>(row.step)),
                       ". Lower the learning rate, or clip gradients (--max-grad-norm)."),
                   Tone::bad};
  }
  const std::vector<CurvePoint> points = joint_curve(run, {figure_of(&MetricsRow::loss)});
  if (points.size() < 2) return std::nullopt;
  const double first = points.front().value;
  const double last = end_of(points);
  if (last < first)
    return Finding{str("The training loss fell from ", number(first), " to ", number(last), "."), Tone::good};
  return Finding{str("The training loss did not fall: it was ", number(first), " in the first step and is ",
                     number(last), " at the end."),
                 Tone::bad};
}

std::optional<Finding> validation_loss(const RunData& run) {
  const std::vector<CurvePoint> points = joint_curve(run, {figure_of(&MetricsRow::validation_loss)});
  if (points.empty()) return std::nullopt;
  const auto best =
      std::min_element(points.begin(), points.end(),
                       [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; });
  const CurvePoint& last = points.back();
  const auto at = [](const CurvePoint& point) { return "step " + grouped(point.step); };
  if (points.size() == 1)
    return Finding{str("The validation loss is ", number(last.value), " at ", at(last), ".")};
  if (best == points.end() - 1)
    return Finding{str("The validation loss is still falling: ", number(last.value), " at ", at(last), "."),
                   Tone::good};
  const bool is_worse = last.value - best->value > kWorse * std::abs(best->value);
  return Finding{str("The validation loss was best at ", at(*best), " (", number(best->value), ") and is ",
                     number(last.value), " at ", at(last), is_worse ? ": the model overfits." : "."),
                 is_worse ? Tone::bad : Tone::neutral};
}

std::optional<Finding> throughput(const RunData& run) {
  for (const auto& [unit, field] : {std::pair{"tokens/s", &MetricsRow::tokens_per_s},
                                    std::pair{"samples/s", &MetricsRow::samples_per_s}}) {
    std::vector<double> values;
    for (const CurvePoint& point : joint_curve(run, {figure_of(field)})) values.push_back(point.value);
    if (values.size() < kStepsForARate) continue;
    const auto quarter = static_cast<std::ptrdiff_t>(values.size() / 4);
    const double first = median({values.begin(), values.begin() + quarter});
    const double last = median({values.end() - quarter, values.end()});
    if (!(first > 0) || last > (1 - kSlower) * first) return std::nullopt;
    return Finding{str("Throughput fell by ", percent(1 - last / first), ", from ", grouped(first), " to ",
                       grouped(last), " ", unit, ". Look for other work on the hosts."),
                   Tone::bad};
  }
  return std::nullopt;
}

std::optional<Finding> communication(const RunData& run) {
  if (run.ranks.size() < 2) return std::nullopt;
  double step_ms = 0;
  double exposed_ms = 0;
  for (const MetricsRow& row : run.rows) {
    if (!row.step_ms || !row.exposed_comm_ms) continue;
    const auto count = static_cast<double>(row.steps.value_or(1));
    step_ms += count * *row.step_ms;
    exposed_ms += count * *row.exposed_comm_ms;
  }
  if (!(step_ms > 0)) return std::nullopt;
  const double share = exposed_ms / step_ms;
  return Finding{str(percent(share), " of the step time waits for communication."),
                 share < kFewWaits    ? Tone::good
                 : share < kManyWaits ? Tone::neutral
                                      : Tone::bad};
}

std::optional<Finding> stragglers(const RunData& run) {
  const std::vector<RankTimes> ranks = rank_times(run.rows);
  if (ranks.size() < 2) return std::nullopt;
  std::optional<Straggler> straggler = find_straggler(ranks);
  if (!straggler) return Finding{"No rank is a straggler.", Tone::good};
  find_slow_part(*straggler, run.timelines);
  return Finding{str("Straggler: ", to_string(*straggler), "."), Tone::bad};
}

}  // namespace

std::string to_string(Finding::Tone tone) {
  return tone == Tone::good ? "good" : tone == Tone::bad ? "bad" : "neutral";
}

std::vector<Finding> verdict(const RunData& run) {
  std::vector<Finding> findings{progress(run)};
  for (const auto part : {training_loss, validation_loss, throughput, communication, stragglers}) {
    if (std::optional<Finding> finding = part(run)) findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace rondo
