#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rondo/format/metrics_row.h"
#include "rondo/format/otlp.h"

namespace rondo::otlp {

// The state of a training as OpenTelemetry's metrics: gauges of the newest step and validation, and
// histograms of the durations of all steps since it began. Values per rank have the attribute "rondo.rank".
// Not thread-safe.
class TrainingMetrics {
 public:
  // Takes the rows of all ranks of a step, or the row of a validation.
  void add(std::span<const MetricsRow> rows);
  // Whether rows were added since the last metrics().
  bool changed() const { return changed_; }
  // Returns the metrics of all rows so far.
  std::vector<Metric> metrics();

 private:
  // Durations of a step that are measured per rank.
  static constexpr std::size_t kDurations = 4;
  using Durations = std::array<HistogramPoint, kDurations>;

  std::vector<MetricsRow> step_;  // newest step's rows of all ranks
  std::map<std::string, double>
      others_;  // newest value of each other metric, because not every step measures all
  std::optional<MetricsRow> validation_;
  std::map<int, Durations> durations_;  // by rank
  bool changed_ = false;
};

}  // namespace rondo::otlp
