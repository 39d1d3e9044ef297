#include "rondo/format/report/document.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/median.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/format/report/curves.h"
#include "rondo/format/report/memory_document.h"
#include "rondo/format/report/stragglers.h"
#include "rondo/format/trace_lanes.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// Mean milliseconds of a step, per rank.
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

Json blocks_json(const std::vector<UnitBlocks>& units) {
  Json result = Json::array();
  for (const UnitBlocks& unit : units) {
    result.push_back({{"rank", unit.rank},
                      {"unit", unit.unit},
                      {"blocks", unit.blocks},
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

Json starts_json(const RunData& run) {
  Json result = Json::array();
  for (const RunStart& start : run.starts) result.push_back(to_json(start));
  return result;
}

std::vector<std::string> missing_parts(const RunData& run, const Json& curves, const Json& split) {
  std::vector<std::string> notes;
  if (run.rows.empty()) return notes;  // said already
  for (const MetricsRow& row : run.rows) {
    if (const auto& loss = row.largest_loss ? row.largest_loss : row.loss; loss && !std::isfinite(*loss)) {
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
  document["title"] = name.empty() ? run.directory.string() : name;
  document["summary"] = summarize(run);
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
