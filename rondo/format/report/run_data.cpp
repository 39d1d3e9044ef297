#include "rondo/format/report/run_data.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/format/compute_timeline.h"
#include "rondo/format/file.h"

namespace rondo {

namespace fs = std::filesystem;
namespace {

constexpr std::size_t timeline_steps = 5;
constexpr std::size_t timeline_events = 600;
constexpr std::size_t problems_shown = 3;

// Removes repeated steps of a run that was killed and resumed. Keeps the later row, which belongs to the
// final model.
std::vector<MetricsRow> without_repetitions(const std::vector<MetricsRow>& rows) {
  std::map<std::tuple<std::int64_t, int, bool>, const MetricsRow*> latest;
  for (const MetricsRow& row : rows) latest[{row.step, row.rank, row.is_validation()}] = &row;
  std::vector<MetricsRow> result;
  for (const auto& [key, row] : latest) result.push_back(*row);
  return result;
}

void read_rows(RunData& run) {
  const fs::path path = run.directory / "metrics.jsonl";
  if (!fs::exists(path)) {
    run.notes.emplace_back("metrics.jsonl is missing, so there are no curves.");
    return;
  }
  MetricsFile file = read_metrics(path);
  if (run.is_running && file.has_partial_line) file.problems.pop_back();
  run.rows = without_repetitions(file.rows);
  std::set<int> ranks;
  for (const MetricsRow& row : run.rows) ranks.insert(row.rank);
  run.ranks.assign(ranks.begin(), ranks.end());
  if (run.rows.empty())
    run.notes.emplace_back("metrics.jsonl holds no row yet: the run has not finished a step.");
  for (std::size_t i = 0; i < std::min(file.problems.size(), problems_shown); ++i) {
    run.notes.push_back("Skipped a damaged line: " + file.problems[i]);
  }
  if (file.problems.size() > problems_shown) {
    run.notes.push_back(
        str("Skipped ", file.problems.size() - problems_shown, " more damaged lines of metrics.jsonl."));
  }
}

void read_starts(RunData& run) {
  const fs::path path = run.directory / "run.json";
  if (!fs::exists(path)) {
    run.notes.emplace_back("run.json is missing, so date, host and command of the run are not known.");
    return;
  }
  try {
    run.starts = read_run_starts(path);
    run.labels = read_run_labels(path);
  } catch (const Error& e) {
    run.notes.push_back(str("Date, host and command of the run cannot be read: ", e.what()));
  }
}

void read_config(RunData& run) {
  const fs::path path = run.directory / "config.json";
  if (!fs::exists(path)) {
    run.notes.emplace_back("config.json is missing, so the configuration is not shown.");
    return;
  }
  try {
    run.config = read_json_file(path);
  } catch (const std::exception& e) {
    run.notes.push_back(str("config.json cannot be read: ", json_problem(e)));
  }
}

// Reads the description of the data. It is only informative: a damaged file is like a missing one.
void read_data(RunData& run) {
  try {
    if (fs::exists(run.directory / "data.json")) run.data = read_json_file(run.directory / "data.json");
  } catch (const std::exception&) {
    run.data = nullptr;
  }
  if (!run.data.is_object()) run.data = nullptr;
}

// Returns the index of the timeline with the median duration; 0 if there is none.
std::size_t median_index(const std::vector<StepTimeline>& timelines) {
  std::vector<std::pair<std::int64_t, std::size_t>> durations;
  for (const StepTimeline& timeline : timelines) {
    std::int64_t end = 0;
    for (const Trace::Event& e : timeline.events) end = std::max(end, e.event.end_ns);
    durations.emplace_back(end, durations.size());
  }
  if (durations.empty()) return 0;
  const auto middle = durations.begin() + static_cast<std::ptrdiff_t>((durations.size() - 1) / 2);
  std::nth_element(durations.begin(), middle, durations.end());
  return middle->second;
}

// Reads the memory samples of the step that the page shows first.
void read_memory_samples(RunData& run, const Trace& trace) {
  std::int64_t step = -1;
  if (!run.timelines.empty()) step = run.timelines[run.median_timeline].step;
  for (const Trace::Counter& sample : trace.counters) {
    if (sample.counter.name == "memory" && sample.counter.step == step) run.memory_samples.push_back(sample);
  }
  if (run.memory_samples.empty()) run.notes.emplace_back("No memory timeline was recorded.");
}

void read_timelines(RunData& run) {
  Trace trace;
  try {
    if (fs::exists(run.directory / "trace.json")) {
      trace = read_trace(run.directory / "trace.json");
    } else {  // still running, or killed before the parts were joined
      for (const int rank : run.ranks) {
        if (!fs::exists(trace_part_path(run.directory, rank))) continue;
        const Trace part = read_trace(trace_part_path(run.directory, rank));
        trace.events.insert(trace.events.end(), part.events.begin(), part.events.end());
        trace.counters.insert(trace.counters.end(), part.counters.begin(), part.counters.end());
      }
    }
  } catch (const DataError& e) {
    run.notes.push_back(str("The trace cannot be read: ", e.what()));
    return;
  }
  run.timelines = select_timelines(trace, timeline_steps, timeline_events);
  run.median_timeline = median_index(run.timelines);
  if (run.timelines.empty())
    run.notes.emplace_back("No trace was recorded, so there is no timeline of a step.");
  read_memory_samples(run, trace);
}

void read_peaks(RunData& run) {
  const fs::path path = run.directory / "memory.json";
  if (!fs::exists(path)) {
    run.notes.emplace_back(
        "memory.json is missing, so the peak is not shown by unit: the run has not ended.");
    return;
  }
  try {
    run.memory_peaks = read_memory_peaks(path);
  } catch (const Error& e) {
    run.notes.push_back(str("The peak of memory cannot be read: ", e.what()));
  }
}

// Reads the prediction that a planned run writes at its end. The page draws it unchanged.
void read_prediction(RunData& run) {
  const fs::path path = run.directory / "prediction.json";
  if (!fs::exists(path)) return;
  try {
    run.prediction = read_json_file(path);
    for (const char* side : {"predicted", "measured"}) {
      const auto& figures = json_member(run.prediction, side, "the file");
      for (const char* key : {"step_ms", "exposed_comm_ms", "peak_bytes"})
        json_number(json_member(figures, key, side), json_place(side, key));
    }
    for (const auto& unit : json_list(json_member(run.prediction, "units", "the file"), "\"units\""))
      json_text(json_member(unit, "name", "a unit"), json_place("a unit", "name"));
  } catch (const std::exception& e) {
    run.prediction = nullptr;
    run.notes.push_back(str("prediction.json cannot be read: ", json_problem(e)));
  }
}

}  // namespace

std::vector<StepTimeline> select_timelines(const Trace& trace, std::size_t steps, std::size_t events) {
  std::map<std::int64_t, std::vector<Trace::Event>> by_step;
  for (const Trace::Event& e : trace.events) {
    if (e.event.step) by_step[*e.event.step].push_back(e);
  }
  if (by_step.size() > 1) by_step.erase(by_step.begin());  // the first step is a warm-up
  std::vector<StepTimeline> result;
  std::size_t index = 0;
  const std::size_t wanted = std::min(steps, by_step.size());
  for (auto& [step, of_step] : by_step) {
    // Chooses the step in the middle of each of `wanted` equal parts of the run.
    const bool is_chosen =
        index++ == (2 * result.size() + 1) * by_step.size() / (2 * std::max<std::size_t>(wanted, 1));
    if (!is_chosen || result.size() == wanted) continue;
    StepTimeline timeline{step, std::move(of_step), 0};
    if (timeline.events.size() > events) {
      timeline.left_out = timeline.events.size() - events;
      std::nth_element(timeline.events.begin(), timeline.events.begin() + static_cast<std::ptrdiff_t>(events),
                       timeline.events.end(), [](const Trace::Event& a, const Trace::Event& b) {
                         return a.event.end_ns - a.event.begin_ns > b.event.end_ns - b.event.begin_ns;
                       });
      timeline.events.resize(events);
    }
    std::sort(
        timeline.events.begin(), timeline.events.end(),
        [](const Trace::Event& a, const Trace::Event& b) { return a.event.begin_ns < b.event.begin_ns; });
    const auto first = std::find_if(timeline.events.begin(), timeline.events.end(),
                                    [](const Trace::Event& e) { return e.event.lane == Lane::compute; });
    const std::int64_t origin =
        (first == timeline.events.end() ? timeline.events.front() : *first).event.begin_ns;
    for (Trace::Event& e : timeline.events) {
      e.event.begin_ns -= origin;
      e.event.end_ns -= origin;
      if (e.event.queued_ns) *e.event.queued_ns -= origin;
    }
    timeline.segments = segments_by_unit(trace, step);
    result.push_back(std::move(timeline));
  }
  return result;
}

void check_run_directory(const fs::path& directory) {
  if (!fs::exists(directory)) throw UsageError(str("RUN_DIR: ", directory.string(), " does not exist"));
  if (!fs::is_directory(directory))
    throw UsageError(str("RUN_DIR: ", directory.string(), " is not a directory"));
  if (!fs::exists(directory / "metrics.jsonl") && !fs::exists(directory / "config.json") &&
      !fs::exists(directory / "trace.json")) {
    throw UsageError(
        str("RUN_DIR: ", directory.string(),
            " is not a run directory: it holds no metrics.jsonl, config.json or trace.json; give the "
            "--run-dir of a 'rondo train'"));
  }
}

RunData read_run(const fs::path& directory) {
  check_run_directory(directory);
  RunData run;
  run.directory = directory;
  run.is_running =
      RunLock::is_held(directory);  // checked first: if the run has ended, all of its files are complete
  read_rows(run);
  read_starts(run);
  read_config(run);
  read_data(run);
  read_timelines(run);
  read_peaks(run);
  read_prediction(run);
  return run;
}

namespace {

using Json = nlohmann::ordered_json;

std::uint64_t bytes_of(const Json& value, const std::string& place) {
  return static_cast<std::uint64_t>(json_integer(value, place, 0));
}

MemoryPeakRecord record_of(const Json& json, const std::string& where) {
  const auto text = [&](const char* key) {
    return json_text(json_member(json, key, where), json_place(where, key));
  };
  MemoryPeakRecord record;
  record.rank =
      static_cast<int>(json_integer(json_member(json, "rank", where), json_place(where, "rank"), 0, INT_MAX));
  record.bytes = bytes_of(json_member(json, "peak_bytes", where), json_place(where, "peak_bytes"));
  record.step = json_integer(json_member(json, "step", where), json_place(where, "step"));
  record.phase = text("phase");
  record.unit = text("unit");
  for (const Json& unit : json_list(json_member(json, "units", where), json_place(where, "units"))) {
    const std::string of_unit = str(where, ", unit ", record.units.size());
    MemoryPeakRecord::Unit& added = record.units.emplace_back();
    added.name = json_text(json_member(unit, "name", of_unit), json_place(of_unit, "name"));
    const Json& categories = json_member(unit, "categories", of_unit);
    for (const auto& [category, bytes] : json_object(categories, json_place(of_unit, "categories")).items())
      added.categories.emplace_back(category, bytes_of(bytes, json_place(of_unit, category)));
  }
  return record;
}

}  // namespace

std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path) {
  const std::string file = path.string();
  const Json document = read_json_file(path);
  std::vector<MemoryPeakRecord> records;
  for (const Json& rank : json_list(json_member(document, "ranks", file), json_place(file, "ranks")))
    records.push_back(record_of(rank, str(file, ": entry ", records.size(), " of \"ranks\"")));
  std::stable_sort(records.begin(), records.end(),
                   [](const MemoryPeakRecord& a, const MemoryPeakRecord& b) { return a.rank < b.rank; });
  return records;
}

namespace {

struct Spans {
  std::vector<TimeSpan> queued;
  std::vector<TimeSpan> link;
};

std::string owner_of(const TraceSpan& event) {
  if (!event.unit.empty()) return event.unit;
  return event.bucket ? str("bucket ", *event.bucket) : event.name;
}

std::int64_t total(const std::vector<TimeSpan>& spans) {
  std::int64_t sum = 0;
  for (const TimeSpan& span : spans) sum += span.length();
  return sum;
}

// Returns the computation by rank, over all steps, because a segment may begin in the previous step.
std::map<int, ComputeTimeline> computed_by_rank(const Trace& trace) {
  std::map<int, std::vector<TraceSpan>> events;
  for (const Trace::Event& e : trace.events) {
    if (e.event.lane == Lane::compute) events[e.rank].push_back(e.event);
  }
  std::map<int, ComputeTimeline> computed;
  for (auto& [rank, own] : events) {
    nest(own);
    computed.emplace(rank, ComputeTimeline(own));
  }
  return computed;
}

}  // namespace

std::vector<UnitSegments> segments_by_unit(const Trace& trace, std::int64_t step) {
  std::vector<UnitSegments> units;
  std::vector<Spans> spans;
  std::map<std::pair<int, std::string>, std::size_t> places;  // by rank and unit
  for (const auto& [rank, event] : trace.events) {
    if (event.lane != Lane::communication || event.step != step) continue;
    const std::string owner = owner_of(event);
    const auto [place, is_new] = places.emplace(std::pair{rank, owner}, units.size());
    const std::size_t index = place->second;
    if (is_new) {
      units.push_back({.rank = rank, .unit = owner});
      spans.emplace_back();
    }
    UnitSegments& unit = units[index];
    ++unit.segments;
    unit.bytes += event.bytes.value_or(0);
    unit.exposed_ns += event.exposed_ns.value_or(0);
    spans[index].link.push_back({event.begin_ns, event.end_ns});
    if (event.queued_ns) spans[index].queued.push_back({*event.queued_ns, event.begin_ns});
  }
  const std::map<int, ComputeTimeline> computed = computed_by_rank(trace);
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::vector<TimeSpan> link = joined(std::move(spans[i].link));
    units[i].queued_ns = total(joined(std::move(spans[i].queued)));
    units[i].link_ns = total(link);
    const auto own = computed.find(units[i].rank);
    if (own != computed.end()) units[i].overlapped = own->second.during(link);
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const UnitSegments& a, const UnitSegments& b) { return a.rank < b.rank; });
  return units;
}

}  // namespace rondo
