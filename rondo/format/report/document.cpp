#include "rondo/format/report/document.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "rondo/base/arithmetic.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/format/report/curves.h"
#include "rondo/format/report/stragglers.h"
#include "rondo/format/report/verdict.h"
#include "rondo/format/trace.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// Returns the mean milliseconds of a step, per rank.
Json time_split(std::span<const RankTimes> ranks) {
  Json result = Json::array();
  for (const RankTimes& times : ranks) {
    result.push_back({{"rank", times.rank},
                      {"compute_ms", times.compute_ms},
                      {"exposed_comm_ms", times.exposed_comm_ms},
                      {"overlapped_comm_ms", times.comm_ms - times.exposed_comm_ms}});
  }
  return result;
}

Json straggler_json(std::optional<Straggler> straggler, const RunData& run) {
  if (!straggler) return nullptr;
  find_slow_part(*straggler, run.timelines);
  return {{"rank", straggler->rank},
          {"compute_ms", straggler->compute_ms},
          {"others_ms", straggler->others_ms},
          {"part", straggler->part.empty() ? Json() : Json(straggler->part)},
          {"text", to_string(*straggler)}};
}

Json named_times(const std::vector<std::pair<std::string, std::int64_t>>& times) {
  Json result = Json::array();
  for (const auto& [what, ns] : times) result.push_back({what, ns_to_milliseconds(ns)});
  return result;
}

Json segments_json(const std::vector<UnitSegments>& units) {
  Json result = Json::array();
  for (const UnitSegments& unit : units) {
    result.push_back({{"rank", unit.rank},
                      {"unit", unit.unit},
                      {"segments", unit.segments},
                      {"bytes", unit.bytes},
                      {"queued_ms", ns_to_milliseconds(unit.queued_ns)},
                      {"link_ms", ns_to_milliseconds(unit.link_ns)},
                      {"exposed_ms", ns_to_milliseconds(unit.exposed_ns)},
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
                 {"begin_ms", ns_to_milliseconds(e.event.begin_ns)},
                 {"end_ms", ns_to_milliseconds(e.event.end_ns)}};
      if (e.event.bucket) event["bucket"] = *e.event.bucket;
      if (e.event.bytes) event["bytes"] = *e.event.bytes;
      if (places[i] > 0) event["place"] = places[i];
      if (!e.event.unit.empty()) event["unit"] = e.event.unit;
      if (e.event.queued_ns) event["queued_ms"] = ns_to_milliseconds(e.event.begin_ns - *e.event.queued_ns);
      if (e.event.exposed_ns) event["exposed_ms"] = ns_to_milliseconds(*e.event.exposed_ns);
      if (!e.event.overlapped.empty()) event["overlapped"] = named_times(e.event.overlapped);
      events.push_back(std::move(event));
    }
    result.push_back({{"step", timeline.step},
                      {"left_out", timeline.left_out},
                      {"events", std::move(events)},
                      {"segments", segments_json(timeline.segments)}});
  }
  return result;
}

// Flattens nested objects to dotted keys: {"model": {"width": 4}} becomes ["model.width", "4"].
void flatten(const Json& value, const std::string& key, Json& rows) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, member] : value.items())
      flatten(member, key.empty() ? name : str(key, ".", name), rows);
  } else if (!key.empty()) {
    rows.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  }
}

std::vector<double> values_of(const RunData& run, std::optional<double> MetricsRow::*field) {
  std::vector<double> values;
  for (const CurvePoint& p : joint_curve(run, {figure_of(field)})) values.push_back(p.value);
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

Json labels_json(const RunLabels& labels) {
  Json json{
      {"name", nullptr}, {"tags", labels.tags.value_or(std::vector<std::string>())}, {"notes", nullptr}};
  if (labels.name) json["name"] = *labels.name;
  if (labels.notes) json["notes"] = *labels.notes;
  return json;
}

Json starts_json(const RunData& run) {
  Json result = Json::array();
  for (const RunStart& start : run.starts) result.push_back(to_json(start));
  return result;
}

Json verdict_json(const RunData& run) {
  Json result = Json::array();
  for (const Finding& finding : verdict(run))
    result.push_back({{"text", finding.text}, {"tone", to_string(finding.tone)}});
  return result;
}

std::vector<std::string> missing_parts(const RunData& run, const Json& curves, const Json& split) {
  std::vector<std::string> notes;
  if (run.rows.empty()) return notes;  // already noted
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
               {"peak_bytes", nullptr},
               {"peak_rss_bytes", nullptr},
               {"parameters", nullptr}};
  if (!run.starts.empty() && run.starts.back().parameters > 0)
    summary["parameters"] = run.starts.back().parameters;
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
    for (const auto& [key, field] : {std::pair{"peak_bytes", &MetricsRow::peak_bytes},
                                     std::pair{"peak_rss_bytes", &MetricsRow::peak_rss_bytes}}) {
      if (!(row.*field)) continue;
      Json& peak = summary[key];
      if (peak.is_null() || peak.get<std::uint64_t>() < *(row.*field)) peak = *(row.*field);
    }
    if (row.step_ms && row.exposed_comm_ms) {
      const auto count = static_cast<double>(row.steps.value_or(1));
      step_ms += count * *row.step_ms;
      exposed_ms += count * *row.exposed_comm_ms;
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
  document["title"] = run.labels.name.value_or(name.empty() ? run.directory.string() : name);
  document["labels"] = labels_json(run.labels);
  document["summary"] = summarize(run);
  document["verdict"] = verdict_json(run);
  const bool is_tokens = document["summary"]["rate_unit"] == "tokens/s";
  Json curves;
  for (const auto& [name, field] :
       {std::pair{"loss", &MetricsRow::loss}, std::pair{"validation_loss", &MetricsRow::validation_loss},
        std::pair{"learning_rate", &MetricsRow::learning_rate},
        std::pair{"rate", is_tokens ? &MetricsRow::tokens_per_s : &MetricsRow::samples_per_s}}) {
    curves[name] = points_json(joint_curve(run, {figure_of(field)}));
  }
  curves["loss"] =
      points_json(joint_curve(run, {figure_of(&MetricsRow::smallest_loss),
                                    figure_of(&MetricsRow::largest_loss), figure_of(&MetricsRow::loss)}));
  curves["step_ms"] =
      rank_curves(run, {figure_of(&MetricsRow::largest_step_ms), figure_of(&MetricsRow::step_ms)});
  for (const auto& [name, field] : {std::pair{"peak_bytes", &MetricsRow::peak_bytes},
                                    std::pair{"peak_rss_bytes", &MetricsRow::peak_rss_bytes},
                                    std::pair{"peak_pss_bytes", &MetricsRow::peak_pss_bytes}}) {
    curves[name] = rank_curves(run, {figure_of(field)});
  }
  document["metrics"] = metric_curves(run);
  document["starts"] = starts_json(run);
  const std::vector<RankTimes> ranks = rank_times(run.rows);
  Json split = time_split(ranks);
  document["straggler"] = straggler_json(find_straggler(ranks), run);
  document["timelines"] = timelines_json(run);
  document["shown_timeline"] = run.median_timeline;
  document["memory"] = memory_document(run);
  if (!run.prediction.is_null()) document["prediction"] = run.prediction;
  document["config"] = Json::array();
  flatten(run.config, "", document["config"]);
  document["changed"] = nullptr;
  if (!run.starts.empty() && run.starts.back().changed_options)
    document["changed"] = *run.starts.back().changed_options;
  document["data"] = run.data;
  document["notes"] = run.notes;
  for (const std::string& note : missing_parts(run, curves, split)) document["notes"].push_back(note);
  document["curves"] = std::move(curves);
  document["split"] = std::move(split);
  return document;
}

namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kUnitsDrawn = 30;
constexpr std::size_t kCategoriesDrawn = 30;

// Memory categories in the order of their first appearance in counters and memory.json. If a file has very
// many, which rondo never writes, the last drawn one is the sum of the others, to limit the number of drawn
// values.
struct Categories {
  std::vector<std::string> names;                       // names to draw
  std::unordered_map<std::string, std::size_t> places;  // index in `names` for all categories
};

Categories categories_of(const RunData& run) {
  Categories categories;
  std::size_t left_out = 0;
  const auto add = [&](const std::string& name) {
    const std::size_t next = std::min(categories.names.size(), kCategoriesDrawn);
    if (!categories.places.emplace(name, next).second) return;
    if (next < kCategoriesDrawn) {
      categories.names.push_back(name);
    } else {
      ++left_out;
    }
  };
  for (const Trace::Counter& sample : run.memory_samples) {
    for (const auto& [name, bytes] : sample.counter.values) add(name);
  }
  for (const MemoryPeakRecord& peak : run.memory_peaks) {
    for (const MemoryPeakRecord::Unit& unit : peak.units) {
      for (const auto& [name, bytes] : unit.categories) add(name);
    }
  }
  if (left_out > 0) categories.names.push_back(str(left_out, " more"));
  return categories;
}

template <class Pairs>
std::vector<std::uint64_t> in_order(const Pairs& values, const Categories& categories) {
  std::vector<std::uint64_t> bytes(categories.names.size(), 0);
  for (const auto& [name, value] : values) bytes[categories.places.at(name)] += value;
  return bytes;
}

Json timelines(const RunData& run, const Categories& categories) {
  std::map<int, std::vector<const TraceCounter*>> by_rank;
  for (const Trace::Counter& sample : run.memory_samples) by_rank[sample.rank].push_back(&sample.counter);
  Json result = Json::array();
  for (const auto& [rank, samples] : by_rank) {
    Json points = Json::array();
    std::uint64_t peak = 0;
    for (const TraceCounter* sample : samples) {
      const std::vector<std::uint64_t> bytes = in_order(sample->values, categories);
      peak = std::max(peak, std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}));
      Json point{static_cast<double>(sample->time_ns - samples.front()->time_ns) * 1e-6};
      for (const std::uint64_t value : bytes) point.push_back(value);
      points.push_back(std::move(point));
    }
    result.push_back({{"rank", rank}, {"peak", peak}, {"samples", std::move(points)}});
  }
  return result;
}

Json units_json(const MemoryPeakRecord& peak, const Categories& categories) {
  struct Row {
    std::string name;
    std::vector<std::uint64_t> bytes;
    std::uint64_t total;
  };
  std::vector<Row> rows;
  for (const MemoryPeakRecord::Unit& unit : peak.units) {
    std::vector<std::uint64_t> bytes = in_order(unit.categories, categories);
    const std::uint64_t total = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
    rows.push_back({unit.name, std::move(bytes), total});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.total > b.total; });
  if (rows.size() > kUnitsDrawn) {
    const std::size_t width = categories.names.size();
    Row rest{str(rows.size() - kUnitsDrawn, " more"), std::vector<std::uint64_t>(width, 0), 0};
    for (std::size_t i = kUnitsDrawn; i < rows.size(); ++i) {
      for (std::size_t c = 0; c < width; ++c) rest.bytes[c] += rows[i].bytes[c];
    }
    rows.resize(kUnitsDrawn);
    rows.push_back(std::move(rest));
  }
  Json result = Json::array();
  for (const Row& row : rows) {
    Json entry{row.name};
    for (const std::uint64_t value : row.bytes) entry.push_back(value);
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace

Json memory_document(const RunData& run) {
  const Categories categories = categories_of(run);
  Json peaks = Json::array();
  for (const MemoryPeakRecord& peak : run.memory_peaks) {
    peaks.push_back({{"rank", peak.rank},
                     {"bytes", peak.bytes},
                     {"step", peak.step},
                     {"phase", peak.phase},
                     {"unit", peak.unit},
                     {"units", units_json(peak, categories)}});
  }
  Json step = nullptr;
  if (!run.memory_samples.empty() && run.memory_samples.front().counter.step)
    step = *run.memory_samples.front().counter.step;
  return {{"categories", categories.names},
          {"step", std::move(step)},
          {"timelines", timelines(run, categories)},
          {"peaks", std::move(peaks)}};
}

}  // namespace rondo
