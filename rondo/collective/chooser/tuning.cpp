#include "rondo/collective/chooser/tuning.h"

#include <climits>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/machine.h"
#include "rondo/base/output.h"
#include "rondo/base/regular_file.h"
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
  if (path.empty()) throw Error("there is no place for measurements: set RONDO_TUNING=/path/to/file");
  std::error_code ignored;  // the write below says what is wrong
  std::filesystem::create_directories(path.parent_path(), ignored);
  write_output(path, format_tuning(tuning));
}

}  // namespace rondo::collective
