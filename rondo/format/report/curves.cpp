#include "rondo/format/report/curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "rondo/base/text.h"
#include "rondo/format/report/document.h"

namespace rondo {

std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, std::size_t limit) {
  if (points.size() <= limit || limit < 3) return points;
  const std::size_t buckets = limit - 2;
  const auto bucket_begin = [&](std::size_t bucket) { return 1 + bucket * (points.size() - 2) / buckets; };
  std::vector<CurvePoint> chosen{points.front()};
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = bucket_begin(bucket);
    const std::size_t end = bucket_begin(bucket + 1);
    const std::size_t next_end = bucket + 1 < buckets ? bucket_begin(bucket + 2) : points.size();
    CurvePoint next;  // mean of the next bucket
    for (std::size_t i = end; i < next_end; ++i) {
      next.step += points[i].step / static_cast<double>(next_end - end);
      next.value += points[i].value / static_cast<double>(next_end - end);
    }
    const CurvePoint& last = chosen.back();
    std::size_t best = begin;
    double best_area = -1;
    for (std::size_t i = begin; i < end; ++i) {
      const double area = std::abs((last.step - next.step) * (points[i].value - last.value) -
                                   (last.step - points[i].step) * (next.value - last.value));
      if (area > best_area) {
        best_area = area;
        best = i;
      }
    }
    chosen.push_back(points[best]);
  }
  chosen.push_back(points.back());
  return chosen;
}

namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kPointsOfACurve = 800;
// Maximum number of curves that can be told apart when they overlap.
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

// Returns the figure for a key of metrics.jsonl.
Figure figure_named(const std::string& key) {
  if (key == "accuracy") return figure_of(&MetricsRow::accuracy);
  if (key == "validation_accuracy") return figure_of(&MetricsRow::validation_accuracy);
  if (key == "loss_scale") return figure_of(&MetricsRow::loss_scale);
  return [key](const MetricsRow& row) -> std::optional<double> {
    const auto found = row.others.find(key);
    return found == row.others.end() ? std::nullopt : std::optional(found->second);
  };
}

// Returns the metric names without "validation_".
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

namespace {

using Json = nlohmann::ordered_json;

// Returns the last `parts` components of each path, as many as needed to make them distinct.
std::vector<std::string> distinct_names(std::span<const RunData> runs) {
  for (std::ptrdiff_t parts = 1;; ++parts) {
    std::vector<std::string> names;
    bool whole = true;
    for (const RunData& run : runs) {
      const std::filesystem::path path = std::filesystem::weakly_canonical(run.directory);
      const auto length = std::distance(path.begin(), path.end());
      std::filesystem::path name;
      for (auto part = std::next(path.begin(), std::max<std::ptrdiff_t>(0, length - parts));
           part != path.end(); ++part)
        name /= *part;
      names.push_back(name.string());
      whole = whole && parts >= length;
    }
    if (whole || std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  }
}

// Returns the names that runs were given, and the distinct names of their directories for the others. Adds
// the directory's name to a given name that another run also has.
std::vector<std::string> shown_names(std::span<const RunData> runs) {
  const std::vector<std::string> directories = distinct_names(runs);
  std::vector<std::string> names = directories;
  for (std::size_t i = 0; i < runs.size(); ++i) names[i] = runs[i].labels.name.value_or(directories[i]);
  std::vector<std::string> shown = names;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].labels.name && std::count(names.begin(), names.end(), names[i]) > 1)
      shown[i] = str(names[i], " (", directories[i], ")");
  }
  return shown;
}

Json differences(const std::vector<Json>& configurations) {
  std::vector<std::string> keys;  // in order of appearance
  std::set<std::string> known;
  std::vector<std::map<std::string, std::string>> values;
  for (const Json& configuration : configurations) {
    values.emplace_back();
    for (const Json& entry : configuration) {
      const auto key = entry[0].get<std::string>();
      if (known.insert(key).second) keys.push_back(key);
      values.back()[key] = entry[1].get<std::string>();
    }
  }
  Json rows = Json::array();
  for (const std::string& key : keys) {
    Json row{key};
    bool differ = false;
    for (const auto& own : values) {
      const auto found = own.find(key);
      row.push_back(found == own.end() ? Json() : Json(found->second));
      differ = differ || row.back() != row[1];
    }
    if (differ) rows.push_back(std::move(row));
  }
  return rows;
}

// Adds the throughput per rank relative to the run with the fewest ranks, if the runs differ in ranks.
void add_scaling_efficiency(Json& runs) {
  const Json* fewest = nullptr;
  bool differ = false;
  for (const Json& run : runs) {
    const Json& summary = run["summary"];
    if (summary["rate"].is_null() || summary["ranks"] == 0) continue;
    if (fewest != nullptr) differ = differ || (*fewest)["ranks"] != summary["ranks"];
    if (fewest == nullptr || summary["ranks"] < (*fewest)["ranks"]) fewest = &summary;
  }
  if (!differ) return;
  const auto rate_per_rank = [](const Json& summary) {
    return summary["rate"].get<double>() / summary["ranks"].get<double>();
  };
  const double best = rate_per_rank(*fewest);
  const Json unit = (*fewest)["rate_unit"];
  for (Json& run : runs) {
    Json& summary = run["summary"];
    const bool known = !summary["rate"].is_null() && summary["rate_unit"] == unit && best > 0;
    summary["scaling_efficiency"] = known ? Json(rate_per_rank(summary) / best) : Json();
  }
}

}  // namespace

Json comparison_document(std::span<const RunData> runs) {
  const std::vector<std::string> names = shown_names(runs);
  Json shown = Json::array();
  Json notes = Json::array();
  std::vector<Json> configurations;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Json document = report_document(runs[i]);
    const Json& curves = document["curves"];
    const RunStart start = runs[i].starts.empty() ? RunStart{} : runs[i].starts.back();
    shown.push_back({{"name", names[i]},
                     {"labels", document["labels"]},
                     {"strategy", start.strategy},
                     {"command", start.made.command},
                     {"started", start.made.time},
                     {"git_commit", start.git_commit},
                     {"summary", document["summary"]},
                     {"metrics", document["metrics"]},
                     {"curves",
                      {{"loss", curves["loss"]},
                       {"validation_loss", curves["validation_loss"]},
                       {"rate", curves["rate"]}}}});
    for (const Json& note : document["notes"]) notes.push_back(str(names[i], ": ", note.get<std::string>()));
    configurations.push_back(document["config"]);
  }
  add_scaling_efficiency(shown);
  return {{"title", join(names, ", ")},
          {"comparison", {{"runs", std::move(shown)}, {"differences", differences(configurations)}}},
          {"notes", std::move(notes)}};
}

}  // namespace rondo
