#include "rondo/format/trace.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/format/trace_span.h"

namespace rondo {

std::string_view to_string(Lane lane) { return lane == Lane::compute ? "compute" : "communication"; }

namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t events_in_memory = 4096;

// Formats a time of the trace-event format in microseconds. Three decimals keep the nanoseconds, which a
// double would round in long runs.
std::string microseconds(std::int64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(ns / 1000),
                static_cast<long long>(ns % 1000));
  return text.data();
}

// Returns the title of the event in a viewer: "all_gather h.3".
std::string title(const TraceSpan& event) {
  return event.unit.empty() ? event.name : str(event.name, " ", event.unit);
}

// Returns the line of an event; `place` is its lane, see places_in_lanes().
std::string event_line(const TraceSpan& event, int rank, std::int64_t origin_ns, int place = 0) {
  Json arguments = Json::object();
  if (event.step) arguments["step"] = *event.step;
  if (!event.unit.empty()) arguments["unit"] = event.unit;
  if (event.bucket) arguments["bucket"] = *event.bucket;
  if (event.bytes) arguments["bytes"] = *event.bytes;
  if (event.queued_ns) arguments["queued_ms"] = ns_to_milliseconds(event.begin_ns - *event.queued_ns);
  if (event.exposed_ns) arguments["exposed_ms"] = ns_to_milliseconds(*event.exposed_ns);
  for (const auto& [what, ns] : event.overlapped) arguments["overlapped_ms"][what] = ns_to_milliseconds(ns);
  return str(R"({"name":)", Json(title(event)).dump(), R"(,"cat":")", to_string(event.lane),
             R"(","ph":"X","pid":)", rank, R"(,"tid":)", static_cast<int>(event.lane) + place, R"(,"ts":)",
             microseconds(event.begin_ns - origin_ns), R"(,"dur":)",
             microseconds(std::max<std::int64_t>(0, event.end_ns - event.begin_ns)), R"(,"args":)",
             arguments.dump(), "}");
}

// Returns the time in the queue as a pair of events, matched by category and number.
std::string queue_lines(const TraceSpan& event, int rank, std::int64_t origin_ns, std::size_t number) {
  const auto line = [&](const char* phase, std::int64_t ns) {
    return str(R"({"name":)", Json(title(event)).dump(), R"(,"cat":"queue","ph":")", phase, R"(","id":)",
               number, R"(,"pid":)", rank, R"(,"tid":)", static_cast<int>(event.lane), R"(,"ts":)",
               microseconds(ns - origin_ns), "},\n");
  };
  return line("b", *event.queued_ns) + line("e", event.begin_ns);
}

// Returns the line of a counter. The step is outside the values, because viewers draw all values.
std::string counter_line(const TraceCounter& counter, int rank, std::int64_t origin_ns) {
  Json values = Json::object();
  for (const auto& [name, value] : counter.values) values[name] = value;
  return str(R"({"name":)", Json(counter.name).dump(), R"(,"ph":"C","pid":)", rank, R"(,"ts":)",
             microseconds(counter.time_ns - origin_ns),
             counter.step ? str(R"(,"step":)", *counter.step) : std::string(), R"(,"args":)", values.dump(),
             "}");
}

// Returns metadata events with the viewer's names of a rank and its lanes; `places` is the number of
// communication lanes.
std::string name_lines(int rank, int places = 1) {
  std::string text = str(R"({"name":"process_name","ph":"M","pid":)", rank, R"(,"args":{"name":"rank )", rank,
                         R"("}},)", "\n", R"({"name":"process_sort_index","ph":"M","pid":)", rank,
                         R"(,"args":{"sort_index":)", rank, "}},\n");
  for (int tid = 0; tid <= places; ++tid) {
    const Lane lane = tid == 0 ? Lane::compute : Lane::communication;
    text += str(R"({"name":"thread_name","ph":"M","pid":)", rank, R"(,"tid":)", tid, R"(,"args":{"name":")",
                to_string(lane), tid > 1 ? str(" ", tid) : std::string(), "\"}},\n");
    text += str(R"({"name":"thread_sort_index","ph":"M","pid":)", rank, R"(,"tid":)", tid,
                R"(,"args":{"sort_index":)", tid, "}},\n");
  }
  return text;
}

// Rounds to an integer, clamped to 2^62 (146 years in ns): foreign files may contain any number, and
// differences of two times must fit an int64.
std::int64_t whole_of(double value) {
  constexpr double most = 0x1p62;
  return std::isfinite(value) ? std::llround(std::clamp(value, -most, most)) : 0;
}

std::int64_t to_ns(const Json& microseconds_value) {
  return whole_of(microseconds_value.get<double>() * 1e3);
}

template <class Value>
Value number_in(const Json& number) {
  if constexpr (!std::is_floating_point_v<Value>) {
    if (number.is_number_float())
      return static_cast<Value>(std::max<std::int64_t>(whole_of(number.get<double>()), 0));
  }
  return number.get<Value>();
}

template <class Value>
std::optional<Value> argument(const Json& arguments, const char* key) {
  const auto found = arguments.find(key);
  if (found == arguments.end() || !found->is_number()) return std::nullopt;
  return number_in<Value>(*found);
}

std::int64_t from_milliseconds(double value) { return whole_of(value * 1e6); }

int rank_of(const Json& json) {
  const auto found = json.find("pid");
  return found == json.end() ? 0 : static_cast<int>(json_integer(*found, "pid", INT_MIN, INT_MAX));
}

// Parses the arguments that only rondo writes.
void parse_block(const Json& arguments, TraceSpan& event) {
  event.unit = arguments.value("unit", "");
  if (!event.unit.empty() && event.name.ends_with(" " + event.unit)) {
    event.name.resize(event.name.size() - event.unit.size() - 1);
  }
  if (const auto queued = argument<double>(arguments, "queued_ms")) {
    event.queued_ns = event.begin_ns - from_milliseconds(*queued);
  }
  if (const auto exposed = argument<double>(arguments, "exposed_ms")) {
    event.exposed_ns = from_milliseconds(*exposed);
  }
  if (const auto found = arguments.find("overlapped_ms"); found != arguments.end() && found->is_object()) {
    for (const auto& [what, ms] : found->items()) {
      if (ms.is_number()) event.overlapped.emplace_back(what, from_milliseconds(ms.get<double>()));
    }
  }
}

std::optional<Trace::Event> parse_event(const Json& json) {
  if (!json.is_object() || json.value("ph", "") != "X" || !json.contains("ts") || !json.contains("dur")) {
    return std::nullopt;
  }
  Trace::Event result{rank_of(json), {}};
  TraceSpan& event = result.event;
  event.name = json.value("name", "");
  event.lane = json.value("tid", Json(0)) == 0 ? Lane::compute : Lane::communication;
  event.begin_ns = to_ns(json["ts"]);
  event.end_ns = event.begin_ns + to_ns(json["dur"]);
  if (json.contains("args") && json["args"].is_object()) {
    event.step = argument<std::int64_t>(json["args"], "step");
    event.bucket = argument<std::int64_t>(json["args"], "bucket");
    event.bytes = argument<std::uint64_t>(json["args"], "bytes");
    parse_block(json["args"], event);
  }
  return result;
}

std::optional<Trace::Counter> parse_counter(const Json& json) {
  if (!json.is_object() || json.value("ph", "") != "C" || !json.contains("ts") || !json.contains("args") ||
      !json["args"].is_object()) {
    return std::nullopt;
  }
  Trace::Counter result{rank_of(json), {}};
  result.counter.name = json.value("name", "");
  result.counter.time_ns = to_ns(json["ts"]);
  result.counter.step = argument<std::int64_t>(json, "step");
  for (const auto& [name, value] : json["args"].items()) {
    if (value.is_number()) result.counter.values.emplace_back(name, number_in<std::uint64_t>(value));
  }
  return result;
}

void parse_into(const Json& json, Trace& trace) {
  try {
    if (const auto event = parse_event(json)) trace.events.push_back(*event);
    if (const auto counter = parse_counter(json)) trace.counters.push_back(*counter);
  } catch (const Json::exception&) {
    return;  // a member of another type: a foreign event
  } catch (const DataError&) {
    return;  // or an invalid number
  }
}

// Parses JSON; empty for invalid text: the end of a killed process's output, or one line of a multi-line
// value.
std::optional<Json> parsed(std::string_view text) {
  if (!text.starts_with('{') && !text.starts_with('[')) return std::nullopt;
  try {
    return parse_json_strict(text, "trace");
  } catch (const DataError&) {
    return std::nullopt;
  }
}

// Reads rondo's own files, which have one event per line; also works for files of killed processes. Other
// files are parsed as a whole.
void read_lines(std::string_view text, Trace& trace) {
  for (const std::string& line : split(text, '\n')) {
    std::string_view object = trim(line);
    if (object.ends_with(',')) object.remove_suffix(1);
    if (const auto json = parsed(object)) parse_into(*json, trace);
  }
}

void read_document(const Json& document, Trace& trace) {
  const Json& list = document.is_object() ? document.at("traceEvents") : document;
  for (const Json& json : list) parse_into(json, trace);
}

void sort_by_time(Trace& trace) {
  std::stable_sort(
      trace.events.begin(), trace.events.end(),
      [](const Trace::Event& a, const Trace::Event& b) { return a.event.begin_ns < b.event.begin_ns; });
  std::stable_sort(
      trace.counters.begin(), trace.counters.end(),
      [](const Trace::Counter& a, const Trace::Counter& b) { return a.counter.time_ns < b.counter.time_ns; });
}

void move_to_common_clock(Trace& trace, const std::vector<ClockReading>& readings) {
  for (Trace::Event& e : trace.events) {
    e.event.begin_ns = common_time_ns(e.event.begin_ns, readings);
    e.event.end_ns = common_time_ns(e.event.end_ns, readings);
    if (e.event.queued_ns) e.event.queued_ns = common_time_ns(*e.event.queued_ns, readings);
  }
  for (Trace::Counter& c : trace.counters) c.counter.time_ns = common_time_ns(c.counter.time_ns, readings);
}

std::optional<int> rank_of_part(const fs::path& path) {
  const std::string name = path.filename().string();
  int rank = -1;
  int used = 0;
  if (std::sscanf(name.c_str(), "trace.rank%d.json%n", &rank, &used) != 1 ||
      static_cast<std::size_t>(used) != name.size() || rank < 0) {
    return std::nullopt;
  }
  return rank;
}

}  // namespace

fs::path trace_part_path(const fs::path& run_directory, int rank) {
  return run_directory / str("trace.rank", rank, ".json");
}

TraceWriter::TraceWriter(const fs::path& run_directory, int rank)
    : rank_(rank), file_(trace_part_path(run_directory, rank), OutputFile::Mode::truncate) {
  // The format allows an unterminated list, so nothing has to be written when a process dies.
  file_.write("[\n" + name_lines(rank));
}

TraceWriter::~TraceWriter() {
  try {
    flush();
  } catch (const Error&) {
    return;  // losing a timeline must not abort the program during stack unwinding
  }
}

void TraceWriter::add(const TraceSpan& event) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(event_line(event, rank_, 0));
  if (pending_.size() >= events_in_memory) write_pending();
}

void TraceWriter::add(const TraceCounter& counter) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(counter_line(counter, rank_, 0));
  if (pending_.size() >= events_in_memory) write_pending();
}

void TraceWriter::flush() {
  const std::lock_guard lock(mutex_);
  write_pending();
}

void TraceWriter::write_pending() {
  std::string text;
  for (const std::string& line : pending_) text += line + ",\n";
  pending_.clear();
  file_.write(text);
}

Trace read_trace(const fs::path& path) {
  const std::string text = read_text_file(path, GiB(4));
  const std::string_view start = trim(std::string_view(text).substr(0, 64));
  if (!start.starts_with('[') && !start.starts_with('{')) {
    throw DataError(str(path.string(), ": offset 0: expected '[' or '{' of a trace-event file"));
  }
  Trace trace;
  read_lines(text, trace);
  if (trace.events.empty()) {
    const std::optional<Json> document = parsed(trim(text));
    if (document && (document->is_array() || (document->is_object() && document->contains("traceEvents")))) {
      trace.counters.clear();
      read_document(*document, trace);
    }
  }
  sort_by_time(trace);
  return trace;
}

std::int64_t common_time_ns(std::int64_t own_ns, const std::vector<ClockReading>& readings) {
  if (readings.empty()) return own_ns;
  const auto& [begin, ahead] = readings.front();
  const auto& [end, ahead_at_end] = readings.back();
  const double drift =
      end > begin ? static_cast<double>(ahead_at_end - ahead) / static_cast<double>(end - begin) : 0.0;
  return own_ns + ahead + std::llround(drift * static_cast<double>(own_ns - begin));
}

std::size_t merge_traces(const fs::path& run_directory, const ClockReadings& clocks) {
  std::vector<fs::path> parts;
  std::set<int> ranks;
  Trace all;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_directory)) {
    const auto rank = rank_of_part(entry.path());
    if (!rank) continue;
    parts.push_back(entry.path());
    ranks.insert(*rank);
    Trace part = read_trace(entry.path());
    if (const auto clock = clocks.find(*rank); clock != clocks.end())
      move_to_common_clock(part, clock->second);
    all.events.insert(all.events.end(), part.events.begin(), part.events.end());
    all.counters.insert(all.counters.end(), part.counters.begin(), part.counters.end());
  }
  if (parts.empty()) return 0;
  sort_by_time(all);
  std::int64_t origin = INT64_MAX;
  for (const Trace::Event& e : all.events) {
    origin = std::min(origin, std::min(e.event.begin_ns, e.event.queued_ns.value_or(e.event.begin_ns)));
  }
  for (const Trace::Counter& c : all.counters) origin = std::min(origin, c.counter.time_ns);

  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const std::vector<int> places = places_in_lanes(all.events);
  std::map<int, int> lanes;  // number of communication lanes, by rank
  for (std::size_t i = 0; i < all.events.size(); ++i) {
    int& most = lanes[all.events[i].rank];
    most = std::max(most, places[i] + 1);
  }
  for (const int rank : ranks) text += name_lines(rank, std::max(1, lanes[rank]));
  for (std::size_t i = 0; i < all.events.size(); ++i) {
    const auto& [rank, event] = all.events[i];
    if (event.queued_ns && *event.queued_ns < event.begin_ns) text += queue_lines(event, rank, origin, i);
    text += event_line(event, rank, origin, places[i]) + ",\n";
  }
  for (const Trace::Counter& c : all.counters) text += counter_line(c.counter, c.rank, origin) + ",\n";
  if (text.ends_with(",\n")) text.erase(text.size() - 2, 1);
  replace_text_file(run_directory / "trace.json", text + "]}\n");
  for (const fs::path& part : parts) fs::remove(part);
  return all.events.size();
}

namespace {

template <class Value>
using SmallestFirst = std::priority_queue<Value, std::vector<Value>, std::greater<>>;

// The lanes of a rank in use.
class Lanes {
 public:
  // Returns the first lane that is free at `begin`. `begin` must not decrease between calls.
  int take(std::int64_t begin, std::int64_t end) {
    for (; !busy_.empty() && busy_.top().first <= begin; busy_.pop()) free_.push(busy_.top().second);
    int place = count_;
    if (free_.empty()) {
      ++count_;
    } else {
      place = free_.top();
      free_.pop();
    }
    busy_.emplace(std::max(begin, end), place);
    return place;
  }

 private:
  SmallestFirst<std::pair<std::int64_t, int>> busy_;  // (end, lane)
  SmallestFirst<int> free_;
  int count_ = 0;
};

}  // namespace

std::vector<int> places_in_lanes(std::span<const Trace::Event> events) {
  std::map<int, Lanes> lanes;  // by rank
  std::vector<int> places;
  for (const auto& [rank, event] : events) {
    if (event.lane == Lane::compute) {
      places.push_back(0);
      continue;
    }
    places.push_back(lanes[rank].take(event.begin_ns, event.end_ns));
  }
  return places;
}

}  // namespace rondo
