#include "rondo/models/config_reader.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::int64_t ConfigReader::whole(const char* key, std::int64_t least) const {
  const nlohmann::json& value = config_.at(key);
  if (!value.is_number_integer() || value.get<std::int64_t>() < least)
    fail(key, str("a whole number of at least ", least));
  return value.get<std::int64_t>();
}

double ConfigReader::number(const char* key) const {
  const nlohmann::json& value = config_.at(key);
  if (!value.is_number()) fail(key, "a number");
  return value.get<double>();
}

bool ConfigReader::boolean(const char* key) const {
  const nlohmann::json& value = config_.at(key);
  if (!value.is_boolean()) fail(key, "true or false");
  return value.get<bool>();
}

std::vector<std::int64_t> ConfigReader::positives(const char* key) const {
  const nlohmann::json& value = config_.at(key);
  const char* expected = "a list of whole numbers of at least 1, such as [128, 64]";
  if (!value.is_array()) fail(key, expected);
  std::vector<std::int64_t> numbers;
  for (const nlohmann::json& item : value) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 1) fail(key, expected);
    numbers.push_back(item.get<std::int64_t>());
  }
  return numbers;
}

std::string ConfigReader::text(const char* key) const {
  const nlohmann::json& value = config_.at(key);
  if (!value.is_string()) fail(key, "a text");
  return value.get<std::string>();
}

void ConfigReader::fail(const char* key, const std::string& expected) const {
  throw UsageError(str("model ", model_, ": ", key, " is ", config_.at(key).dump(), ", expected ", expected));
}

}  // namespace rondo
