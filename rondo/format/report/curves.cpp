#include "rondo/format/report/curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "rondo/base/text.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kPointsOfACurve = 800;
// More lines than this cannot be told apart where they lie on each other.
constexpr std::size_t kMostRankCurves = 4;
constexpr std::string_view kValidation = "validation_";

std::vector<CurvePoint> rank_curve(const RunData& run, int rank, const Figures& figures) {
  std::vector<CurvePoint> points;
  for (const MetricsRow& row : run.rows) {
    if (row.rank != rank) continue;
    for (const Figure& figure : figures) {
      const std::optional<double> value = figure(row);
      if (value && std::isfinite(*value))
        points.push_back({static_cast<double>(row.step), row.elapsed_s, *value});
    }
  }
  return points;
}

Json spread_curves(const std::vector<std::vector<CurvePoint>>& curves) {
  struct Spread {
    CurvePoint smallest, largest;
    double sum = 0;
    int ranks = 0;
  };
  std::map<double, Spread> by_step;
  for (const auto& points : curves) {
    for (const CurvePoint& p : points) {
      Spread& spread = by_step[p.step];
      if (spread.ranks == 0) spread.smallest = spread.largest = p;
      if (p.value < spread.smallest.value) spread.smallest = p;
      if (p.value > spread.largest.value) spread.largest = p;
      spread.sum += p.value;
      ++spread.ranks;
    }
  }
  std::vector<CurvePoint> smallest;
  std::vector<CurvePoint> mean;
  std::vector<CurvePoint> largest;
  for (const auto& [step, spread] : by_step) {
    smallest.push_back(spread.smallest);
    mean.push_back({step, spread.smallest.elapsed_s, spread.sum / spread.ranks});
    largest.push_back(spread.largest);
  }
  const auto entry = [](const char* role, const std::vector<CurvePoint>& points) {
    return Json{{"label", str(role, " of the ranks")}, {"role", role}, {"points", points_json(points)}};
  };
  return Json::array({entry("smallest", smallest), entry("mean", mean), entry("largest", largest)});
}

// The figure under a key of metrics.jsonl.
Figure figure_named(const std::string& key) {
  if (key == "accuracy") return figure_of(&MetricsRow::accuracy);
  if (key == "validation_accuracy") return figure_of(&MetricsRow::validation_accuracy);
  if (key == "loss_scale") return figure_of(&MetricsRow::loss_scale);
  return [key](const MetricsRow& row) -> std::optional<double> {
    const auto found = row.others.find(key);
    return found == row.others.end() ? std::nullopt : std::optional(found->second);
  };
}

// Names without "validation_".
std::set<std::string> metric_names(const RunData& run) {
  std::set<std::string> names;
  for (const MetricsRow& row : run.rows) {
    for (const auto& [key, value] : row.others)
      names.insert(key.starts_with(kValidation) ? key.substr(kValidation.size()) : key);
    if (row.accuracy || row.validation_accuracy) names.insert("accuracy");
    if (row.loss_scale) names.insert("loss_scale");
  }
  return names;
}

}  // namespace

std::vector<CurvePoint> joint_curve(const RunData& run, const Figures& figures) {
  for (const int rank : run.ranks) {
    std::vector<CurvePoint> points = rank_curve(run, rank, figures);
    if (!points.empty()) return points;
  }
  return {};
}

Json points_json(const std::vector<CurvePoint>& points) {
  Json result = Json::array();
  for (const CurvePoint& p : downsample(points, kPointsOfACurve)) {
    result.push_back({p.step, p.elapsed_s, p.value});
  }
  return result;
}

Json rank_curves(const RunData& run, const Figures& figures) {
  std::vector<std::vector<CurvePoint>> curves;
  Json result = Json::array();
  for (const int rank : run.ranks) {
    curves.push_back(rank_curve(run, rank, figures));
    if (curves.back().empty()) continue;
    result.push_back({{"label", str("rank ", rank)}, {"rank", rank}, {"points", points_json(curves.back())}});
  }
  return result.size() > kMostRankCurves ? spread_curves(curves) : result;
}

Json metric_curves(const RunData& run) {
  Json result = Json::array();
  for (const std::string& name : metric_names(run)) {
    Json training = points_json(joint_curve(run, {figure_named(name)}));
    Json validation = points_json(joint_curve(run, {figure_named(std::string(kValidation) + name)}));
    if (training.empty() && validation.empty()) continue;
    result.push_back(
        {{"name", name}, {"training", std::move(training)}, {"validation", std::move(validation)}});
  }
  return result;
}

}  // namespace rondo
