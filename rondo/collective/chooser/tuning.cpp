#include "rondo/collective/chooser/tuning.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rondo/base/error.h"
#include "rondo/base/machine.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "rondo-tuning-1";

TuningCell parse_cell(const Json& json) {
  TuningCell cell;
  cell.operation = find_operation(json.at("operation"));
  cell.ranks = json.at("ranks");
  cell.bytes = json.at("bytes");
  for (const auto& [algorithm, time] : json.at("p50_us").items()) cell.times.push_back({algorithm, time});
  if (cell.ranks < 1) throw Error("ranks must be at least 1");
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
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) throw Error(str("is not of format ", kFormat));
    Tuning tuning;
    tuning.machine = json.at("machine");
    for (const Json& cell : json.at("cells")) tuning.cells.push_back(parse_cell(cell));
    return tuning;
  } catch (const std::exception& e) {
    throw Error(str(origin, " is not a table of measurements: ", e.what(),
                    ". Make a new one with rondo bench collectives --tune, or remove it."));
  }
}

Tuning read_tuning(const std::filesystem::path& path) {
  if (path.empty() || !std::filesystem::exists(path)) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(str("cannot read ", path.string()));
  return parse_tuning(text.str(), path.string());
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
  // Readers see the old table or the new one.
  const std::filesystem::path fresh = str(path.string(), ".", getpid());
  std::ofstream file(fresh, std::ios::binary);
  file << format_tuning(tuning);
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(fresh, path, failed);
  if (!file || failed) {
    std::filesystem::remove(fresh, ignored);
    throw Error(str("cannot write ", path.string(), failed ? str(": ", failed.message()) : std::string()));
  }
}

}  // namespace rondo::collective
