#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "rondo/format/report/run_data.h"

namespace rondo {

// A point of a curve, for either horizontal axis.
struct CurvePoint {
  double step = 0;
  double elapsed_s = 0;
  double value = 0;
};

// At most `limit` (at least 3) of the points, chosen so that the drawn curve looks the same:
// Largest-Triangle-Three- Buckets (Steinarsson, "Downsampling Time Series for Visual Representation", 2013).
// Keeps the first and the last.
std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, std::size_t limit);

// One figure of a row, where the row has it.
using Figure = std::function<std::optional<double>(const MetricsRow&)>;

template <class Value>
Figure figure_of(std::optional<Value> MetricsRow::*field) {
  return [field](const MetricsRow& row) -> std::optional<double> {
    if (!(row.*field)) return std::nullopt;
    return static_cast<double>(*(row.*field));
  };
}

// Several of a row, each a point of the curve: what a row of many steps says of the smallest and largest.
using Figures = std::vector<Figure>;

// Of a figure that is the same on all ranks: the finite values of the first rank that has any.
std::vector<CurvePoint> joint_curve(const RunData& run, const Figures& figures);

// [[step, elapsed_s, value]], downsampled.
nlohmann::ordered_json points_json(const std::vector<CurvePoint>& points);

// [{label, rank, points}], one for each rank. Of more ranks than can be told apart (4), three curves with a
// `role`: "smallest", "mean" and "largest" of the ranks at each step.
nlohmann::ordered_json rank_curves(const RunData& run, const Figures& figures);

// [{name, training: points, validation: points}] of every metric that rows carry beside the loss and what
// rondo itself measures: accuracy, perplexity, the Trainer's own. By name; the loss scale and the gradients'
// norm are among them.
nlohmann::ordered_json metric_curves(const RunData& run);

// What the page draws of several runs beside each other: {title, comparison: {runs: [{name, strategy,
// command, summary, curves: {loss, validation_loss, rate}}], differences: [[key, value of each run]]},
// notes}. A run's name is its directory's last part, or as much more as makes names differ. Differences are
// of the configurations, a key that a run lacks is null.
nlohmann::ordered_json comparison_document(std::span<const RunData> runs);

}  // namespace rondo
