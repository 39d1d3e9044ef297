#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/options/option.h"

namespace rondo {

// An option that a configuration file sets.
struct FileOption {
  std::string name;      // Option::name: "segment-size", from `segment_size` or from `size` in [segment]
  std::string key;       // the key as written in the file, for messages: "block.size"
  nlohmann::json value;  // text, number, boolean, null, a list of these, or an object
  int line = 0;          // line number, from 1
};

// Format of a configuration file. TOML is version 1.0 as toml++ implements it. No option accepts dates,
// times, inf, nan or arrays of tables.
enum class ConfigFormat { toml, json };

// Returns whether an option takes a whole object, so that the keys inside it are not options.
using TakesObject = std::function<bool(const std::string& name)>;

// Parses the text of a configuration file. A table's name becomes a prefix: `every` in [checkpoint] is
// "checkpoint-every". Throws UsageError "WHAT:LINE: ..." for text that cannot be parsed. For an option that
// is set twice, the message names both lines.
std::vector<FileOption> parse_config(std::string_view text, const std::string& what, ConfigFormat format,
                                     const TakesObject& takes_object);

// Calls parse_config() for a file with the extension .toml or .json. Throws UsageError if the file is
// missing, unreadable, empty, not UTF-8, larger than 1 MiB or has another extension.
std::vector<FileOption> read_config_file(const std::filesystem::path& path, const TakesObject& takes_object);

// Converts a value of a file to the text that `option` parses; empty for null, which sets nothing. Throws
// UsageError naming the expected type.
std::string option_text(const Option& option, const nlohmann::json& value);

}  // namespace rondo
