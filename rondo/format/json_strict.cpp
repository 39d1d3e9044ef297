#include "rondo/format/json_strict.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

nlohmann::ordered_json parse_json_strict(std::string_view text, const std::string& what) {
  using Json = nlohmann::ordered_json;
  std::vector<std::set<std::string>> keys_of_open_objects;
  const auto watch_keys = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys_of_open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_of_open_objects.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys_of_open_objects.back().insert(value.get<std::string>()).second) {
      throw DataError(str(what, ": key \"", value.get<std::string>(), "\" appears twice in one object"));
    }
    return true;
  };
  try {
    return Json::parse(text, watch_keys);
  } catch (const Json::parse_error& e) {
    throw DataError(str(what, ": not valid JSON at byte ", e.byte, ": ", e.what()));
  }
}

}  // namespace rondo
