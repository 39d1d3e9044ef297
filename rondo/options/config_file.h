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
  std::string name;      // as Option::name has it: "block-size", from `block_size` or from `size` in [block]
  std::string key;       // as the file spells it, for messages: "block.size"
  nlohmann::json value;  // text, number, boolean, null, a list of these, or an object
  int line = 0;          // from 1
};

// TOML is that of toml++ (1.0). Dates and times, inf, nan and arrays of tables are values of no option.
enum class ConfigFormat { toml, json };

// Returns whether an option takes an object as a whole, so that the names in it are not options.
using TakesObject = std::function<bool(const std::string& name)>;

// Parses a configuration file's text. A table's name stands before the names in it: `every` in [checkpoint]
// is "checkpoint-every". Throws UsageError "WHAT:LINE: ..." for text that cannot be parsed, and for an option
// that is set twice, naming both lines.
std::vector<FileOption> parse_config(std::string_view text, const std::string& what, ConfigFormat format,
                                     const TakesObject& takes_object);

// parse_config() of a file that ends in .toml or .json. Throws UsageError for one that is missing,
// unreadable, empty, not UTF-8 or larger than 1 MiB, and for another ending.
std::vector<FileOption> read_config_file(const std::filesystem::path& path, const TakesObject& takes_object);

// Returns the text that `option` reads for a value of a file; empty for null, which sets nothing. Throws
// UsageError saying which type was expected.
std::string option_text(const Option& option, const nlohmann::json& value);

}  // namespace rondo
