#include "rondo/format/report/document.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "rondo/base/median.h"
#include "rondo/base/text.h"
#include "rondo/format/report/downsample.h"
#include "rondo/format/report/memory_document.h"
#include "rondo/format/trace_lanes.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t points_of_a_curve = 800;
// More curves than this are unreadable; then the smallest, the middle and the largest of the ranks are drawn.
constexpr std::size_t most_rank_curves = 8;

template <class Value>
using Field = std::optional<Value> MetricsRow::*;

template <class Value>
std::vector<CurvePoint> curve(const RunData& run, int rank, Field<Value> field) {
  std::vector<CurvePoint> points;
  for (const MetricsRow& row : run.rows) {
    if (row.rank != rank || !(row.*field)) continue;
    const double value = static_cast<double>(*(row.*field));
    if (std::isfinite(value)) points.push_back({static_cast<double>(row.step), row.elapsed_s, value});
  }
  return points;
}

// Of a figure that is the same on all ranks: the first rank that has it.
template <class Value>
std::vector<CurvePoint> joint_curve(const RunData& run, Field<Value> field) {
  for (const int rank : run.ranks) {
    std::vector<CurvePoint> points = curve(run, rank, field);
    if (!points.empty()) return points;
  }
  return {};
}

Json points_json(const std::vector<CurvePoint>& points) {
  Json result = Json::array();
  for (const CurvePoint& p : downsample(points, points_of_a_curve)) {
    result.push_back({p.step, p.elapsed_s, p.value});
  }
  return result;
}

Json spread_curves(const std::vector<std::vector<CurvePoint>>& curves) {
  std::map<double, std::vector<CurvePoint>> by_step;
  for (const auto& points : curves) {
    for (const CurvePoint& p : points) by_step[p.step].push_back(p);
  }
  std::vector<CurvePoint> smallest;
  std::vector<CurvePoint> middle;
  std::vector<CurvePoint> largest;
  for (auto& [step, points] : by_step) {
    std::sort(points.begin(), points.end(),
              [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; });
    smallest.push_back(points.front());
    middle.push_back(points[points.size() / 2]);
    largest.push_back(points.back());
  }
  return Json::array({{{"label", "smallest of the ranks"}, {"rank", 0}, {"points", points_json(smallest)}},
                      {{"label", "median of the ranks"}, {"rank", 1}, {"points", points_json(middle)}},
                      {{"label", "largest of the ranks"}, {"rank", 2}, {"points", points_json(largest)}}});
}

template <class Value>
Json rank_curves(const RunData& run, Field<Value> field) {
  std::vector<std::vector<CurvePoint>> curves;
  Json result = Json::array();
  for (const int rank : run.ranks) {
    curves.push_back(curve(run, rank, field));
    if (curves.back().empty()) continue;
    result.push_back({{"label", str("rank ", rank)}, {"rank", rank}, {"points", points_json(curves.back())}});
  }
  return result.size() > most_rank_curves ? spread_curves(curves) : result;
}

// Mean milliseconds of a step, per rank.
Json time_split(const RunData& run) {
  Json result = Json::array();
  for (const int rank : run.ranks) {
    double compute = 0;
    double exposed = 0;
    double communication = 0;
    double steps = 0;
    for (const MetricsRow& row : run.rows) {
      if (row.rank != rank || !row.compute_ms) continue;
      compute += *row.compute_ms;
      exposed += row.exposed_comm_ms.value_or(0);
      communication += std::max(row.comm_ms.value_or(0), row.exposed_comm_ms.value_or(0));
      ++steps;
    }
    if (steps == 0) continue;
    result.push_back({{"rank", rank},
                      {"compute_ms", compute / steps},
                      {"exposed_comm_ms", exposed / steps},
                      {"overlapped_comm_ms", (communication - exposed) / steps}});
  }
  return result;
}

double milliseconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

Json named_times(const std::vector<std::pair<std::string, std::int64_t>>& times) {
  Json result = Json::array();
  for (const auto& [what, ns] : times) result.push_back({what, milliseconds(ns)});
  return result;
}

Json blocks_json(const std::vector<UnitBlocks>& units) {
  Json result = Json::array();
  for (const UnitBlocks& unit : units) {
    result.push_back({{"rank", unit.rank},
                      {"unit", unit.unit},
                      {"blocks", unit.blocks},
                      {"bytes", unit.bytes},
                      {"queued_ms", milliseconds(unit.queued_ns)},
                      {"link_ms", milliseconds(unit.link_ns)},
                      {"exposed_ms", milliseconds(unit.exposed_ns)},
                      {"overlapped", named_times(unit.overlapped)}});
  }
  return result;
}

Json timelines_json(const RunData& run) {
  Json result = Json::array();
  for (const StepTimeline& timeline : run.timelines) {
    Json events = Json::array();
    const std::vector<int> places = places_in_lanes(timeline.events);
    for (std::size_t i = 0; i < timeline.events.size(); ++i) {
      const Trace::Event& e = timeline.events[i];
      Json event{{"rank", e.rank},
                 {"lane", to_string(e.event.lane)},
                 {"name", e.event.name},
                 {"begin_ms", milliseconds(e.event.begin_ns)},
                 {"end_ms", milliseconds(e.event.end_ns)}};
      if (e.event.bucket) event["bucket"] = *e.event.bucket;
      if (e.event.bytes) event["bytes"] = *e.event.bytes;
      if (places[i] > 0) event["place"] = places[i];
      if (!e.event.unit.empty()) event["unit"] = e.event.unit;
      if (e.event.queued_ns) event["queued_ms"] = milliseconds(e.event.begin_ns - *e.event.queued_ns);
      if (e.event.exposed_ns) event["exposed_ms"] = milliseconds(*e.event.exposed_ns);
      if (!e.event.overlapped.empty()) event["overlapped"] = named_times(e.event.overlapped);
      events.push_back(std::move(event));
    }
    result.push_back({{"step", timeline.step},
                      {"left_out", timeline.left_out},
                      {"events", std::move(events)},
                      {"blocks", blocks_json(timeline.blocks)}});
  }
  return result;
}

// Nested objects become dotted keys: {"model": {"width": 4}} is ["model.width", "4"].
void flatten(const Json& value, const std::string& key, Json& rows) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, member] : value.items())
      flatten(member, key.empty() ? name : str(key, ".", name), rows);
  } else if (!key.empty()) {
    rows.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  }
}

template <class Value>
std::vector<double> values_of(const RunData& run, Field<Value> field) {
  std::vector<double> values;
  for (const CurvePoint& p : joint_curve(run, field)) values.push_back(p.value);
  return values;
}

void add_rate(const RunData& run, Json& summary) {
  for (const auto& [unit, field] : {std::pair{"tokens/s", &MetricsRow::tokens_per_s},
                                    std::pair{"samples/s", &MetricsRow::samples_per_s}}) {
    const std::vector<double> values = values_of(run, field);
    if (values.empty()) continue;
    summary["rate"] = median(values);
    summary["rate_unit"] = unit;
    return;
  }
}

std::vector<std::string> missing_parts(const RunData& run, const Json& curves, const Json& split) {
  std::vector<std::string> notes;
  if (run.rows.empty()) return notes;  // said already
  for (const MetricsRow& row : run.rows) {
    if (row.loss && !std::isfinite(*row.loss)) {
      notes.push_back(str("The training loss was not finite from step ", row.step, " on or in between."));
      break;
    }
  }
  const auto note_empty = [&](const Json& part, const char* note) {
    if (part.empty()) notes.emplace_back(note);
  };
  note_empty(curves["loss"], "No training loss was recorded.");
  note_empty(curves["validation_loss"], "No validation loss was recorded.");
  note_empty(curves["rate"], "No throughput was recorded.");
  note_empty(curves["learning_rate"], "No learning rate was recorded.");
  note_empty(split, "No split of the step time was recorded.");
  note_empty(curves["peak_bytes"], "No memory was recorded.");
  return notes;
}

}  // namespace

Json summarize(const RunData& run) {
  Json summary{{"run", run.directory.string()},
               {"ranks", run.ranks.size()},
               {"steps", nullptr},
               {"epochs", nullptr},
               {"elapsed_s", nullptr},
               {"final_loss", nullptr},
               {"best_validation_loss", nullptr},
               {"rate", nullptr},
               {"rate_unit", nullptr},
               {"exposed_comm_share", nullptr},
               {"peak_bytes", nullptr}};
  double step_ms = 0;
  double exposed_ms = 0;
  for (const MetricsRow& row : run.rows) {
    summary["steps"] =
        std::max(row.step, summary["steps"].is_null() ? 0 : summary["steps"].get<std::int64_t>());
    summary["epochs"] =
        std::max(row.epoch + 1, summary["epochs"].is_null() ? 0 : summary["epochs"].get<std::int64_t>());
    if (row.elapsed_s > 0) {
      summary["elapsed_s"] =
          std::max(row.elapsed_s, summary["elapsed_s"].is_null() ? 0.0 : summary["elapsed_s"].get<double>());
    }
    if (row.peak_bytes) {
      summary["peak_bytes"] = std::max(*row.peak_bytes, summary["peak_bytes"].is_null()
                                                            ? std::uint64_t{0}
                                                            : summary["peak_bytes"].get<std::uint64_t>());
    }
    if (row.step_ms && row.exposed_comm_ms) {
      step_ms += *row.step_ms;
      exposed_ms += *row.exposed_comm_ms;
    }
  }
  if (step_ms > 0) summary["exposed_comm_share"] = exposed_ms / step_ms;
  const std::vector<double> losses = values_of(run, &MetricsRow::loss);
  if (!losses.empty()) summary["final_loss"] = losses.back();
  const std::vector<double> validation = values_of(run, &MetricsRow::validation_loss);
  if (!validation.empty())
    summary["best_validation_loss"] = *std::min_element(validation.begin(), validation.end());
  add_rate(run, summary);
  return summary;
}

Json report_document(const RunData& run) {
  Json document;
  const auto name = std::filesystem::weakly_canonical(run.directory).filename().string();
  document["title"] = name.empty() ? run.directory.string() : name;
  document["summary"] = summarize(run);
  const bool is_tokens = document["summary"]["rate_unit"] == "tokens/s";
  Json curves;
  curves["loss"] = points_json(joint_curve(run, &MetricsRow::loss));
  curves["validation_loss"] = points_json(joint_curve(run, &MetricsRow::validation_loss));
  curves["learning_rate"] = points_json(joint_curve(run, &MetricsRow::learning_rate));
  curves["rate"] =
      points_json(joint_curve(run, is_tokens ? &MetricsRow::tokens_per_s : &MetricsRow::samples_per_s));
  curves["step_ms"] = rank_curves(run, &MetricsRow::step_ms);
  curves["peak_bytes"] = rank_curves(run, &MetricsRow::peak_bytes);
  curves["peak_rss_bytes"] = rank_curves(run, &MetricsRow::peak_rss_bytes);
  curves["peak_pss_bytes"] = rank_curves(run, &MetricsRow::peak_pss_bytes);
  Json split = time_split(run);
  document["timelines"] = timelines_json(run);
  document["memory"] = memory_document(run);
  if (!run.prediction.is_null()) document["prediction"] = run.prediction;
  document["config"] = Json::array();
  flatten(run.config, "", document["config"]);
  document["notes"] = run.notes;
  for (const std::string& note : missing_parts(run, curves, split)) document["notes"].push_back(note);
  document["curves"] = std::move(curves);
  document["split"] = std::move(split);
  return document;
}

}  // namespace rondo
