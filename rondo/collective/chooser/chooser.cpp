#include "rondo/collective/chooser/chooser.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "rondo-tuning-1";

TuningCell parse_cell(const Json& json, const std::string& where) {
  const auto place = [&](const char* key) { return json_place(where, key); };
  TuningCell cell;
  cell.operation = find_operation(json_text(json_member(json, "operation", where), place("operation")));
  cell.ranks = static_cast<int>(json_integer(json_member(json, "ranks", where), place("ranks"), 1, INT_MAX));
  cell.bytes = static_cast<std::size_t>(json_integer(json_member(json, "bytes", where), place("bytes"), 0));
  const Json& times = json_object(json_member(json, "p50_us", where), place("p50_us"));
  for (const auto& [algorithm, time] : times.items())
    cell.times.push_back({algorithm, json_number(time, str(place("p50_us"), " of ", algorithm))});
  for (const AlgorithmTime& time : cell.times) {
    if (!(time.p50_us > 0)) throw Error(str("p50_us of ", time.algorithm, " must be above 0"));
  }
  return cell;
}

// Times within this factor are equal within noise: then the engine is used, which needs no schedule and no
// copies.
constexpr double kEqual = 1.05;

// Moves the algorithm to use to the front: the fastest, or the engine if none is clearly faster.
void put_pick_first(std::vector<AlgorithmTime>& times) {
  std::stable_sort(times.begin(), times.end(),
                   [](const AlgorithmTime& a, const AlgorithmTime& b) { return a.p50_us < b.p50_us; });
  const auto engine =
      std::find_if(times.begin(), times.end(), [](const auto& time) { return time.algorithm == kEngine; });
  if (engine != times.end() && engine->p50_us <= kEqual * times.front().p50_us)
    std::rotate(times.begin(), engine, engine + 1);
}

std::string microseconds(double us) {
  TextStream out;
  out << std::setprecision(3) << us << " us";
  return out.str();
}

std::optional<double> time_of(const TuningCell& cell, const std::string& algorithm) {
  for (const AlgorithmTime& time : cell.times) {
    if (time.algorithm == algorithm) return time.p50_us;
  }
  return std::nullopt;
}

// Interpolates (or extrapolates) the time of an algorithm at `bytes` from two measured sizes.
std::optional<double> time_at(const TuningCell& below, const TuningCell& above, std::uint64_t bytes,
                              const std::string& algorithm) {
  const auto low = time_of(below, algorithm);
  const auto high = time_of(above, algorithm);
  if (!low || !high) return std::nullopt;
  if (below.bytes == above.bytes || bytes <= below.bytes) return low;
  const double part = std::log(static_cast<double>(bytes) / static_cast<double>(below.bytes)) /
                      std::log(static_cast<double>(above.bytes) / static_cast<double>(below.bytes));
  return *low * std::pow(*high / *low, part);
}

// An algorithm set for one operation must support it; one set for all is used for the operations that it
// supports.
void check_operation(const std::string& operation, const std::string& algorithm, const std::string& origin) {
  OperationKind kind{};
  try {
    kind = find_operation(operation);
  } catch (const UsageError& e) {
    throw UsageError(str(origin, ": ", e.what()));
  }
  if (algorithm != kEngine && !find_algorithm(algorithm).has(kind))
    throw UsageError(str(origin, ": ", operation, "=", algorithm, ": this algorithm has no such operation"));
}

}  // namespace

std::filesystem::path tuning_path() { return measurement_path("RONDO_TUNING", "collectives.json"); }

std::string format_tuning(const Tuning& tuning) {
  Json cells = Json::array();
  for (const TuningCell& cell : tuning.cells) {
    Json times = Json::object();
    for (const AlgorithmTime& time : cell.times) times[time.algorithm] = time.p50_us;
    cells.push_back({{"operation", name(cell.operation)},
                     {"ranks", cell.ranks},
                     {"bytes", cell.bytes},
                     {"p50_us", times}});
  }
  return Json{{"format", kFormat}, {"machine", tuning.machine}, {"cells", cells}}.dump(1) + "\n";
}

Tuning parse_tuning(const std::string& text, const std::string& origin) {
  try {
    const Json json = parse_json_strict(text, origin);
    if (json.at("format") != kFormat) throw Error(str("is not of format ", kFormat));
    Tuning tuning;
    tuning.machine = json_text(json.at("machine"), "\"machine\"");
    for (const Json& cell : json_list(json.at("cells"), "\"cells\""))
      tuning.cells.push_back(parse_cell(cell, str("cell ", tuning.cells.size())));
    return tuning;
  } catch (const std::exception& e) {
    throw Error(str(origin, " is not a table of measurements: ", json_problem(e),
                    ". Make a new one with rondo bench collectives --tune, or remove it."));
  }
}

Tuning read_tuning(const std::filesystem::path& path) {
  if (path.empty() || !std::filesystem::exists(path)) return {};
  return parse_tuning(read_regular_file(path), path.string());
}

Tuning read_tuning_of_this_machine() {
  Tuning tuning = read_tuning(tuning_path());
  if (!tuning.cells.empty() && tuning.machine != machine_name()) tuning.cells.clear();
  return tuning;
}

void write_tuning(const std::filesystem::path& path, const Tuning& tuning) {
  if (path.empty()) throw Error("there is no folder for measurements: set RONDO_TUNING=/path/to/file");
  std::error_code ignored;  // the write below reports the error
  std::filesystem::create_directories(path.parent_path(), ignored);
  write_output(path, format_tuning(tuning));
}

AlgorithmOverrides parse_hand_set(const std::string& text, const std::string& origin) {
  std::vector<std::string> known = algorithm_names();
  known.insert(known.begin(), kEngine);
  AlgorithmOverrides set;
  for (const std::string& part : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string operation = equals == std::string::npos ? "" : part.substr(0, equals);
    const std::string algorithm = equals == std::string::npos ? part : part.substr(equals + 1);
    if (std::find(known.begin(), known.end(), algorithm) == known.end()) {
      throw UsageError(str(origin, ": '", algorithm, "' is not one of ", join(known, ", ")));
    }
    if (!operation.empty()) check_operation(operation, algorithm, origin);
    set[operation] = algorithm;
  }
  return set;
}

Chooser::Chooser(Tuning tuning, AlgorithmOverrides hand_set)
    : tuning_(std::move(tuning)), hand_set_(std::move(hand_set)) {
  std::sort(tuning_.cells.begin(), tuning_.cells.end(),
            [](const TuningCell& a, const TuningCell& b) { return a.bytes < b.bytes; });
  for (const auto& [operation, algorithm] : hand_set_) only_engine_ &= algorithm == kEngine;
  for (TuningCell cell : tuning_.cells) {
    put_pick_first(cell.times);
    only_engine_ &= cell.times.empty() || cell.times.front().algorithm == kEngine;
  }
}

Choice Chooser::choose(OperationKind operation, int ranks, std::uint64_t bytes) const {
  for (const std::string& key : {std::string(name(operation)), std::string()}) {
    if (const auto found = hand_set_.find(key); found != hand_set_.end())
      return {found->second, "set by hand"};
  }
  const TuningCell* below = nullptr;
  const TuningCell* above = nullptr;
  for (const TuningCell& cell : tuning_.cells) {  // by size
    if (cell.operation != operation || cell.ranks != ranks) continue;
    if (cell.bytes <= bytes) below = &cell;
    if (cell.bytes >= bytes && above == nullptr) above = &cell;
  }
  if (below == nullptr && above == nullptr) {
    return {kEngine, str("no measurement of ", name(operation), " on ", ranks,
                         " ranks; rondo bench collectives --tune makes one")};
  }
  if (below == nullptr) below = above;
  if (above == nullptr) above = below;
  std::vector<AlgorithmTime> times;
  for (const AlgorithmTime& time : below->times) {
    if (const auto us = time_at(*below, *above, bytes, time.algorithm))
      times.push_back({time.algorithm, *us});
  }
  if (times.empty()) return {kEngine, "no algorithm was measured below and above this size"};
  put_pick_first(times);
  std::string reason = str(name(operation), " of ", to_string(Bytes{bytes}), " on ", ranks,
                           " ranks: ", times[0].algorithm, " ", microseconds(times[0].p50_us));
  if (times.size() > 1) reason += str(", next best ", times[1].algorithm, " ", microseconds(times[1].p50_us));
  reason += below == above ? str(" (measured at ", to_string(Bytes{below->bytes}), ")")
                           : str(" (measured at ", to_string(Bytes{below->bytes}), " and ",
                                 to_string(Bytes{above->bytes}), ")");
  return {times[0].algorithm, reason};
}

}  // namespace rondo::collective
