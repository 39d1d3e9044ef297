#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/models/config_checks.h"

namespace rondo {

// Reads of one config.json; errors name the file and the entry.
class ConfigEntries {
 public:
  ConfigEntries(const nlohmann::json& config, const std::string& source) : config_(config), source_(source) {
    if (!config.is_object()) throw DataError(str(source, ": expected a JSON object"));
  }

  // From 0 to kMostSizes.
  std::int64_t integer(const char* key) const {
    return json_integer(find(key), str(source_, ": ", key), 0, kMostSizes);
  }
  std::int64_t integer_or(const char* key, std::int64_t otherwise) const {
    return config_.contains(key) && !config_.at(key).is_null() ? integer(key) : otherwise;
  }
  double number(const char* key, double otherwise) const {
    if (!config_.contains(key) || config_.at(key).is_null()) return otherwise;
    if (!config_.at(key).is_number()) fail(key, "a number");
    return config_.at(key).get<double>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!config_.contains(key) || config_.at(key).is_null()) return otherwise;
    if (!config_.at(key).is_string()) fail(key, "a text");
    return config_.at(key).get<std::string>();
  }
  // A setting that has to be `expected` where it is there at all.
  template <class Value>
  void require(const char* key, const Value& expected) const {
    if (config_.contains(key) && !config_.at(key).is_null() && config_.at(key) != expected) {
      fail(key, nlohmann::json(expected).dump());
    }
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    throw DataError(str(source_, ": ", key, " is ", config_.at(key).dump(), ", expected ", expected));
  }

 private:
  const nlohmann::json& find(const char* key) const {
    if (!config_.contains(key)) throw DataError(str(source_, ": '", key, "' is missing"));
    return config_.at(key);
  }

  const nlohmann::json& config_;
  const std::string& source_;
};

}  // namespace rondo
