#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "rondo/format/report/run_data.h"

namespace rondo {

// A point of a curve, for both horizontal axes.
struct CurvePoint {
  double step = 0;
  double elapsed_s = 0;
  double value = 0;
};

// Returns at most `limit` (at least 3) points, selected so that the drawn curve looks the same:
// Largest-Triangle-Three-Buckets (Steinarsson, "Downsampling Time Series for Visual Representation", 2013).
// Keeps the first and the last point.
std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, std::size_t limit);

// Returns one figure of a row; empty if the row lacks it.
using Figure = std::function<std::optional<double>(const MetricsRow&)>;

template <class Value>
Figure figure_of(std::optional<Value> MetricsRow::*field) {
  return [field](const MetricsRow& row) -> std::optional<double> {
    if (!(row.*field)) return std::nullopt;
    return static_cast<double>(*(row.*field));
  };
}

// Several figures of a row, each a point of the curve: for example the smallest and largest values of a row
// of many steps.
using Figures = std::vector<Figure>;

// Returns the curve of a figure that is equal on all ranks: the finite values of the first rank that has any.
std::vector<CurvePoint> joint_curve(const RunData& run, const Figures& figures);

// Returns [[step, elapsed_s, value]], downsampled.
nlohmann::ordered_json points_json(const std::vector<CurvePoint>& points);

// Returns [{label, rank, points}], one entry per rank. For more than 4 ranks, which could not be told apart,
// returns three curves with a `role`: "smallest", "mean" and "largest" over the ranks at each step.
nlohmann::ordered_json rank_curves(const RunData& run, const Figures& figures);

// Returns [{name, training: points, validation: points}] for every metric other than the loss and rondo's own
// measurements: accuracy, perplexity, a trainer's own metrics, the loss scale and the gradient norm. Sorted
// by name.
nlohmann::ordered_json metric_curves(const RunData& run);

// Returns the document of a comparison page: {title, comparison: {runs: [{name, labels, strategy, command,
// started, git_commit, summary, metrics, curves: {loss, validation_loss, rate}}], differences: [[key, value
// of each run]]}, notes}. A run's name is its label, or the last part of its directory; names that are equal
// get more parts of the directory. Differences are those of the configurations; a missing key is null.
nlohmann::ordered_json comparison_document(std::span<const RunData> runs);

}  // namespace rondo
