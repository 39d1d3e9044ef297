#pragma once

#include <map>
#include <string>
#include <vector>

#include "rondo/options/config_file.h"

namespace rondo {

// Lists and tables inside each other in a configuration file, at most.
constexpr int kDeepestConfig = 16;

// Collects the options of a configuration file while it is parsed, and refuses what is set twice.
class ConfigBuilder {
 public:
  ConfigBuilder(std::string what, const TakesObject& takes_object)
      : what_(std::move(what)), takes_object_(takes_object) {}

  // Adds the value of a key in nested tables. Throws UsageError when the option has a value already.
  void add(const std::vector<std::string>& path, nlohmann::json value, int line);
  std::vector<FileOption> take() { return std::move(options_); }

  // Throws UsageError "WHAT:LINE: problem".
  [[noreturn]] void fail(int line, const std::string& problem) const;

 private:
  FileOption* find(const std::string& name);
  [[noreturn]] void fail_twice(const std::string& key, int line, int first) const;

  std::string what_;
  const TakesObject& takes_object_;
  std::vector<FileOption> options_;
  std::map<std::vector<std::string>, int> lines_;  // of what objects hold, by the whole path
};

// Reads TOML (see ConfigFormat) into `builder`. Throws UsageError.
void read_toml(std::string_view text, ConfigBuilder& builder);

}  // namespace rondo
