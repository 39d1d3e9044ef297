#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace rondo {

// Hands the events of a JSON text to `reader`, which decides what is an error and how deep values may be.
// `line` is the line, from 1, of what the parser has read so far: at key() that of the key. Behind the value
// nothing may follow.
void parse_json_by_line(std::string_view text, nlohmann::json_sax<nlohmann::json>& reader, int& line);

}  // namespace rondo
