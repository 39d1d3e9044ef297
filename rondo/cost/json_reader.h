#pragma once

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::cost {

// A strict reader of one JSON object. Every error is a DataError that names the field's path in the file.
class JsonReader {
 public:
  using Json = nlohmann::ordered_json;
  // `where` is the prefix of every message. Throws DataError for a field that is not in `known`.
  JsonReader(const Json& object, std::string where, std::initializer_list<const char*> known)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw DataError(str(where_, ": expected an object, found ", object.type_name()));
    const std::set<std::string> names(known.begin(), known.end());
    for (const auto& [key, value] : object.items()) {
      if (!names.contains(key))
        throw DataError(str(where_, ".", key, ": unknown field; see docs/planner.md"));
    }
  }

  bool boolean(const char* key) const {
    const Json& value = at(key);
    if (!value.is_boolean())
      throw DataError(str(path(key), ": expected true or false, found ", value.type_name()));
    return value.get<bool>();
  }
  bool has(const char* key) const { return object_.contains(key); }
  std::string path(const char* key) const { return str(where_, ".", key); }

  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw DataError(str(path(key), ": missing"));
    return *found;
  }
  double signed_number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number()) throw DataError(str(path(key), ": expected a number, found ", value.type_name()));
    const double number = value.get<double>();
    if (!std::isfinite(number)) throw DataError(str(path(key), ": ", value.dump(), " is not finite"));
    return number;
  }
  double number(const char* key) const {
    const double number = signed_number(key);
    if (number < 0) throw DataError(str(path(key), ": ", at(key).dump(), " is negative"));
    return number;
  }
  double number_or(const char* key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  std::uint64_t whole(const char* key) const {
    const double value = number(key);
    if (value != std::floor(value) || value > 9e15)
      throw DataError(str(path(key), ": ", at(key).dump(), " is not a whole number below 9e15"));
    return static_cast<std::uint64_t>(value);
  }
  // Returns a count of bytes or objects that may be negative.
  std::int64_t integer(const char* key) const {
    const double value = signed_number(key);
    if (std::abs(value) > 9e15 || value != std::floor(value))
      throw DataError(str(path(key), ": ", at(key).dump(), " is not an integer within 9e15"));
    return static_cast<std::int64_t>(value);
  }
  std::uint64_t whole_or(const char* key, std::uint64_t otherwise) const {
    return has(key) ? whole(key) : otherwise;
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) throw DataError(str(path(key), ": expected a string, found ", value.type_name()));
    return value.get<std::string>();
  }
  const Json& list(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) throw DataError(str(path(key), ": expected a list, found ", value.type_name()));
    return value;
  }

 private:
  const Json& object_;
  std::string where_;
};

}  // namespace rondo::cost
