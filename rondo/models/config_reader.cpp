#include "rondo/models/config_reader.h"

#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void check_positive(std::string_view model, std::string_view entry, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    throw UsageError(str(model, ": ", entry, " is ", value, ", expected 1 to ", most));
}

void check_probability(std::string_view model, std::string_view entry, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    throw UsageError(str(model, ": ", entry, " is ", value, ", expected 0 <= ", entry, " < 1"));
  }
}

void check_heads(std::string_view model, std::int64_t width, std::int64_t heads) {
  if (width % heads != 0)
    throw UsageError(str(model, ": width ", width, " is not a multiple of heads ", heads));
}

namespace {

std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<std::int64_t>();  // values of 2^63 and above become negative
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace

std::int64_t ConfigReader::whole(const char* key, std::int64_t least, std::int64_t most) const {
  const std::optional<std::int64_t> value = whole_number(config_.at(key), least, most);
  if (!value) fail(key, str("a whole number from ", least, " to ", most));
  return *value;
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
  const std::string expected = str("a list of whole numbers from 1 to ", kMostSizes, ", such as [128, 64]");
  if (!value.is_array()) fail(key, expected);
  std::vector<std::int64_t> numbers;
  for (const nlohmann::json& item : value) {
    const std::optional<std::int64_t> number = whole_number(item, 1, kMostSizes);
    if (!number) fail(key, expected);
    numbers.push_back(*number);
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
