#pragma once

#include <cfloat>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "rondo/base/bytes.h"

// How rondo reads JSON, wherever it comes from: files, flags, environment variables, other processes.
namespace rondo {

// Lists and objects inside each other, at most. Copying and destroying a value recurses, so that depth of a
// text must not decide how much stack that takes.
constexpr int kDeepestJson = 64;

// Parses JSON that must be exactly right: valid UTF-8, nothing behind the value, no key twice in one object
// (where readers of other languages disagree about which one counts), numbers that a double can hold, at most
// kDeepestJson levels. Linear in the length of the text. `what` names the text in errors, for example
// "run/manifest.json". Throws DataError with the byte offset.
nlohmann::ordered_json parse_json_strict(std::string_view text, const std::string& what);

// parse_json_strict() of a regular file of at most `limit`. Throws DataError.
nlohmann::ordered_json read_json_file(const std::filesystem::path& path, Bytes limit = MiB(256));

// What the JSON library complains about, without its own name and number of the complaint, cut to a line.
std::string json_problem(const std::exception& error);

// A whole number of [low, high], however it is written (2, 2.0, 2e0). Throws DataError naming `where`, what
// stands there and what was expected. For both kinds of the library's values.
template <class Json>
std::int64_t json_integer(const Json& value, const std::string& where, std::int64_t low = INT64_MIN,
                          std::int64_t high = INT64_MAX);

// A number of [low, high], which is finite. Throws DataError naming `where` and what stands there.
template <class Json>
double json_number(const Json& value, const std::string& where, double low = -DBL_MAX, double high = DBL_MAX);

// A text. Throws DataError naming `where` and what stands there.
template <class Json>
std::string json_text(const Json& value, const std::string& where);

// True or false. Throws DataError naming `where` and what stands there.
template <class Json>
bool json_boolean(const Json& value, const std::string& where);

// The value itself where it is a list, or an object. Throws DataError naming `where` and what stands there.
template <class Json>
const Json& json_list(const Json& value, const std::string& where);
template <class Json>
const Json& json_object(const Json& value, const std::string& where);

// What stands under `key`, which is as long there as `object` is. Throws DataError naming `where` and the key
// for a value that is no object or has no such key.
template <class Json>
const Json& json_member(const Json& object, const std::string& key, const std::string& where);

// "run.json: start 0: \"ranks\"", for the members that are read by the functions above.
std::string json_place(const std::string& where, const std::string& key);

}  // namespace rondo
