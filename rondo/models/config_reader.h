#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {

// Checks of a model's configuration; `model` ("gpt") begins the message. Each throws UsageError with the
// entry, its value and the valid range.

// Limits: kMostParts for numbers of modules, kMostSizes for all other sizes.
constexpr std::int64_t kMostParts = 65536, kMostSizes = 0x7fffffff;

// Checks 1 <= value <= most.
void check_positive(std::string_view model, std::string_view entry, std::int64_t value,
                    std::int64_t most = kMostSizes);
// Checks 0 <= value < 1.
void check_probability(std::string_view model, std::string_view entry, double value);
// Checks that `heads` divides `width`.
void check_heads(std::string_view model, std::int64_t width, std::int64_t heads);

// A reader of one config.json; errors name the file and the entry.
class ConfigEntries {
 public:
  ConfigEntries(const nlohmann::json& config, const std::string& source) : config_(config), source_(source) {
    if (!config.is_object()) throw DataError(str(source, ": expected a JSON object"));
  }

  // Returns an integer from 0 to kMostSizes.
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
  // Throws DataError if the entry exists and is not `expected`.
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

// A typed reader of one model's complete configuration. Every error is a UsageError with the model, the key,
// the value and the valid values.
class ConfigReader {
 public:
  // Keeps a reference to `config`.
  ConfigReader(std::string model, const nlohmann::json& config) : model_(std::move(model)), config_(config) {}

  std::int64_t positive(const char* key, std::int64_t most = kMostSizes) const { return whole(key, 1, most); }
  std::int64_t whole(const char* key, std::int64_t least, std::int64_t most = kMostSizes) const;
  double number(const char* key) const;
  bool boolean(const char* key) const;
  // Returns integers from 1 to kMostSizes.
  std::vector<std::int64_t> positives(const char* key) const;
  std::string text(const char* key) const;
  // Throws the error of `key`.
  [[noreturn]] void fail(const char* key, const std::string& expected) const;

 private:
  std::string model_;
  const nlohmann::json& config_;
};

// The result of a family of models: the module, and its forward of one input.
struct BuiltModel {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

// Wraps a module with such a forward.
template <class Impl>
BuiltModel built(std::shared_ptr<Impl> module) {
  return {module, [module](const at::Tensor& input) { return module->forward(input); }};
}

}  // namespace rondo
