#pragma once

#include <cfloat>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "rondo/base/bytes.h"

// JSON parsing for all input: files, flags, environment variables, messages of other processes.
namespace rondo {

// Maximum nesting depth of lists and objects. Copying and destroying a value recurses, so unlimited depth
// could overflow the stack.
constexpr int kDeepestJson = 64;

// Parses JSON strictly: valid UTF-8, nothing after the value, no duplicate key in an object (parsers of other
// languages disagree about which one counts), only numbers that a double can hold, at most kDeepestJson
// levels. Linear in the length of the text. `what` names the text in errors, for example "run/manifest.json".
// Throws DataError with the byte offset.
nlohmann::ordered_json parse_json_strict(std::string_view text, const std::string& what);

// Parses a regular file of at most `limit` with parse_json_strict(). Throws DataError.
nlohmann::ordered_json read_json_file(const std::filesystem::path& path, Bytes limit = MiB(256));

// Returns the JSON library's message without its exception name and number, shortened to a line.
std::string json_problem(const std::exception& error);

// Returns a whole number in [low, high], in any notation (2, 2.0, 2e0). Throws DataError naming `where`, the
// value and the expected range. Instantiated for nlohmann::json and nlohmann::ordered_json.
template <class Json>
std::int64_t json_integer(const Json& value, const std::string& where, std::int64_t low = INT64_MIN,
                          std::int64_t high = INT64_MAX);

// Returns a finite number in [low, high]. Throws DataError naming `where` and the value.
template <class Json>
double json_number(const Json& value, const std::string& where, double low = -DBL_MAX, double high = DBL_MAX);

// Returns a string. Throws DataError naming `where` and the value.
template <class Json>
std::string json_text(const Json& value, const std::string& where);

// Returns a boolean. Throws DataError naming `where` and the value.
template <class Json>
bool json_boolean(const Json& value, const std::string& where);

// Returns `value` if it is a list (or an object). Throws DataError naming `where` and the value.
template <class Json>
const Json& json_list(const Json& value, const std::string& where);
template <class Json>
const Json& json_object(const Json& value, const std::string& where);

// Returns a reference to the member `key` of `object`. Throws DataError naming `where` and the key if
// `object` is not an object or lacks the key.
template <class Json>
const Json& json_member(const Json& object, const std::string& key, const std::string& where);

// Returns the `where` text for a member, for the functions above: "run.json: start 0: \"ranks\"".
std::string json_place(const std::string& where, const std::string& key);

}  // namespace rondo
