#include "rondo/format/run_file.h"

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// Nobody has more, and sums of such numbers do not overflow.
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

RunStart start_of(const Json& json, const std::string& where) {
  const auto text = [&](const char* key) {
    return json_text(json_member(json, key, where), json_place(where, key));
  };
  const auto count = [&](const char* key, std::int64_t low, std::int64_t high) {
    return json_integer(json_member(json, key, where), json_place(where, key), low, high);
  };
  RunStart start;
  start.made.program = text("program");
  start.made.version = text("version");
  start.made.time = text("time");
  start.made.host = text("host");
  start.made.command = text("command");
  start.strategy = text("strategy");
  start.backend = text("backend");
  start.ranks = static_cast<int>(count("ranks", 1, kMostRanks));
  start.first_step = count("first_step", 0, kMostSteps);
  if (json.contains("total_steps")) start.total_steps = count("total_steps", 0, kMostSteps);
  return start;
}

}  // namespace

Json to_json(const RunStart& start) {
  Json json = to_json(start.made);
  json["strategy"] = start.strategy;
  json["backend"] = start.backend;
  json["ranks"] = start.ranks;
  json["first_step"] = start.first_step;
  if (start.total_steps > 0) json["total_steps"] = start.total_steps;
  return json;
}

std::vector<RunStart> read_run_starts(const std::filesystem::path& path) {
  const std::string file = path.string();
  const Json document = parse_json_strict(read_text_file(path), file);
  std::vector<RunStart> starts;
  for (const Json& start : json_list(json_member(document, "starts", file), json_place(file, "starts")))
    starts.push_back(start_of(start, str(file, ": start ", starts.size(), " of \"starts\"")));
  return starts;
}

void add_run_start(const std::filesystem::path& path, const RunStart& start) {
  std::vector<RunStart> starts;
  if (start.first_step > 0 && std::filesystem::exists(path)) {
    try {
      starts = read_run_starts(path);
    } catch (const DataError&) {
      // It says how the run came about and decides nothing: training goes on without what is damaged.
    }
  }
  std::erase_if(starts, [&](const RunStart& other) { return other.first_step > start.first_step; });
  starts.push_back(start);
  Json list = Json::array();
  for (const RunStart& each : starts) list.push_back(to_json(each));
  // Host names and command lines are bytes of the user's.
  replace_text_file(path, Json{{"starts", list}}.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace rondo
