#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "rondo/models/config_checks.h"

namespace rondo {

// Typed reads of one model's complete configuration. Every error is a UsageError that names the model, the
// key, the value and what is allowed.
class ConfigReader {
 public:
  // Keeps a reference to `config`.
  ConfigReader(std::string model, const nlohmann::json& config) : model_(std::move(model)), config_(config) {}

  std::int64_t positive(const char* key, std::int64_t most = kMostSizes) const { return whole(key, 1, most); }
  std::int64_t whole(const char* key, std::int64_t least, std::int64_t most = kMostSizes) const;
  double number(const char* key) const;
  bool boolean(const char* key) const;
  // Each from 1 to kMostSizes.
  std::vector<std::int64_t> positives(const char* key) const;
  std::string text(const char* key) const;
  // Throws the error of `key`.
  [[noreturn]] void fail(const char* key, const std::string& expected) const;

 private:
  std::string model_;
  const nlohmann::json& config_;
};

}  // namespace rondo
