#include "rondo/format/run_file.h"

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

RunStart start_of(const Json& json) {
  RunStart start;
  start.made.program = json.at("program").get<std::string>();
  start.made.version = json.at("version").get<std::string>();
  start.made.time = json.at("time").get<std::string>();
  start.made.host = json.at("host").get<std::string>();
  start.made.command = json.at("command").get<std::string>();
  start.strategy = json.at("strategy").get<std::string>();
  start.backend = json.at("backend").get<std::string>();
  start.ranks = json.at("ranks").get<int>();
  start.first_step = json.at("first_step").get<std::int64_t>();
  if (json.contains("total_steps")) start.total_steps = json.at("total_steps").get<std::int64_t>();
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
  const Json document = parse_json_strict(read_text_file(path), path.string());
  std::vector<RunStart> starts;
  try {
    const Json& list = document.at("starts");
    if (!list.is_array()) throw DataError(str(path.string(), ": \"starts\" is not a list"));
    for (const Json& start : list) starts.push_back(start_of(start));
  } catch (const Json::exception& e) {
    throw DataError(str(path.string(), ": start ", starts.size(), " of \"starts\": ", e.what()));
  }
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
