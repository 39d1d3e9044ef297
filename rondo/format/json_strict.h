#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace rondo {

// Parses JSON that must be exactly right: valid UTF-8, nothing behind the value, and no key twice in one
// object (where readers of other languages disagree about which one counts). `what` names the text in errors,
// for example "run/manifest.json". Throws DataError with the byte offset.
nlohmann::ordered_json parse_json_strict(std::string_view text, const std::string& what);

}  // namespace rondo
