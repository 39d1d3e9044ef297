#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Option texts by name ({"bucket-size", "5MiB"}), as flags and configuration files give them.
using OptionValues = std::map<std::string, std::string>;

// JSON type of a value. On the command line a list is separated by commas.
enum class OptionKind { toggle, integer, number, text, list };

// Restrictions on an option's values beyond its type.
struct AllowedValues {
  std::string rule = {};                    // rule for numbers, for messages: "above 0"
  std::function<bool(double)> number = {};  // whether a number satisfies the rule
  std::vector<std::string> names = {};      // the only allowed values, sorted
  // throws UsageError for invalid text
  std::function<void(const std::string& text, const std::string& what)> check = {};
  std::string type = {};  // type shown in help if it differs from the C++ type: "PATH"
};

AllowedValues above_zero();                            // numbers above 0
AllowedValues zero_or_more();                          // numbers >= 0
AllowedValues within(double least, double most);       // bounds included
AllowedValues one_of(std::vector<std::string> names);  // only these names
// Existing files and folders. A missing path is a usage error; damaged content is not.
AllowedValues path_to_read();
AllowedValues size_in_bytes();  // texts that parse_bytes() accepts
AllowedValues duration();       // texts that parse_duration() accepts

// A dependency: the option has no effect unless another option has one of `values` (or, if `values` is empty,
// is given at all).
struct OptionNeed {
  std::string option;                    // name of the other option
  std::vector<std::string> values = {};  // empty: any value
};

// One option of an options struct, for flags, configuration files and help. The functions take the address of
// the struct that the OptionTable describes.
struct Option {
  std::string name;                              // "bucket-size"
  std::string help;                              // a line without a full stop
  OptionKind kind = OptionKind::text;            // type in JSON
  std::string type = {};                         // value type shown in help: "N", "SIZE", "{adam,adamw,sgd}"
  AllowedValues allowed = {};                    // allowed values
  std::string group = {};                        // heading in help
  bool is_common = false;                        // also listed in short help
  bool has_flag = true;                          // false: settable only by --set and configuration files
  bool takes_object = false;                     // accepts a table of a configuration file instead of text
  std::optional<OptionNeed> needs = {};          // option without which this one has no effect
  std::optional<std::string> default_text = {};  // empty: no default
  // Parses `text` into the struct; `what` names the option in errors. Does not check `allowed`.
  std::function<void(void* options, const std::string& text, const std::string& what)> set = {};
  // Returns the struct's value as text that set() accepts; nullopt for an optional without a value.
  std::function<std::optional<std::string>(const void* options)> text = {};

  // Returns the name for messages: "--lr", or "segment-size" for an option without a flag.
  std::string shown_name() const { return has_flag ? "--" + name : name; }
  // Checks `value` against `allowed` and calls set(). Throws UsageError naming shown_name(), the value and
  // the allowed values.
  void read(void* options, const std::string& value) const;
};

// Joins items for messages: "adam, adamw or sgd".
std::string list_with_or(const std::vector<std::string>& items);

}  // namespace rondo
