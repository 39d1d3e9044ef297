#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Options as texts by name ({"bucket-size", "5MiB"}): what flags and configuration files say.
using OptionValues = std::map<std::string, std::string>;

// How a value looks in JSON. A list is written with commas on the command line.
enum class OptionKind { toggle, integer, number, text, list };

// Which values an option takes, besides being readable as its type.
struct AllowedValues {
  std::string rule = {};                    // of numbers: "above 0"
  std::function<bool(double)> number = {};  // whether a number keeps to it
  std::vector<std::string> names = {};      // only these, sorted
  std::function<void(const std::string& text, const std::string& what)> check = {};  // throws UsageError
  std::string type = {};  // for help, where the type in C++ says less: "PATH"
};

AllowedValues above_zero();                            // numbers above 0
AllowedValues zero_or_more();                          // numbers from 0 on
AllowedValues within(double least, double most);       // both included
AllowedValues one_of(std::vector<std::string> names);  // these names only
// A file or folder that is there: what the user mistyped is wrong usage, unlike what is damaged.
AllowedValues path_to_read();
AllowedValues size_in_bytes();  // as parse_bytes() reads it
AllowedValues duration();       // as parse_duration() reads it

// An option that another one leaves without effect, unless that has one of `values` (of none: unless it is
// given at all).
struct OptionNeed {
  std::string option;                    // the other one
  std::vector<std::string> values = {};  // empty: it is given at all
};

// One option of an options struct, as flags, configuration files and help see it. The functions take the
// address of the struct that the option's OptionTable is of.
struct Option {
  std::string name;                              // "bucket-size"
  std::string help;                              // a line without a full stop
  OptionKind kind = OptionKind::text;            // how it looks in JSON
  std::string type = {};                         // of the value, for help: "N", "SIZE", "{adam,adamw,sgd}"
  AllowedValues allowed = {};                    // which values it takes
  std::string group = {};                        // heading in help
  bool is_common = false;                        // in short help too
  bool has_flag = true;                          // false: set by --set and configuration files alone
  bool takes_object = false;                     // a table of a configuration file may stand for the text
  std::optional<OptionNeed> needs = {};          // the option without which it has no effect
  std::optional<std::string> default_text = {};  // empty: none
  // Reads `text` into the struct; `what` names the option in errors. Does not ask `allowed`.
  std::function<void(void* options, const std::string& text, const std::string& what)> set = {};
  // The struct's value as a text that set() reads; empty when an optional has none.
  std::function<std::optional<std::string>(const void* options)> text = {};

  // The name in messages: "--lr", or "block-size" of an option without a flag.
  std::string shown_name() const { return has_flag ? "--" + name : name; }
  // set() of a value that is allowed. Throws UsageError naming shown_name(), the value and what is allowed.
  void read(void* options, const std::string& value) const;
};

// Items as a person lists them: "adam, adamw or sgd".
std::string list_with_or(const std::vector<std::string>& items);

}  // namespace rondo
