#include "rondo/options/config_file.h"

#define TOML_ENABLE_FORMATTERS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestConfig = MiB(1);

std::string option_name(const std::vector<std::string>& path, std::size_t length) {
  const std::vector<std::string> keys(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length));
  std::string name = join(keys, "-");
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Maximum nesting depth of lists and tables in a configuration file.
constexpr int kDeepestConfig = 16;

// Collects the options of a configuration file while it is parsed. Refuses options that are set twice.
class ConfigBuilder {
 public:
  ConfigBuilder(std::string what, const TakesObject& takes_object)
      : what_(std::move(what)), takes_object_(takes_object) {}

  // Adds the value of a key in nested tables. Throws UsageError if the option already has a value.
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
  std::map<std::vector<std::string>, int> lines_;  // line numbers of keys inside object options, by full path
};

FileOption* ConfigBuilder::find(const std::string& name) {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const FileOption& option) { return option.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

void ConfigBuilder::fail(int line, const std::string& problem) const {
  throw UsageError(str(what_, ":", line, ": ", problem));
}

void ConfigBuilder::fail_twice(const std::string& key, int line, int first) const {
  fail(line, str(printable(key), " is set twice: line ", first, " sets it too"));
}

void ConfigBuilder::add(const std::vector<std::string>& path, nlohmann::json value, int line) {
  for (std::size_t length = 1; length < path.size(); ++length) {
    const std::string name = option_name(path, length);
    if (!takes_object_(name)) continue;
    FileOption* option = find(name);
    if (option == nullptr) {
      const std::vector<std::string> keys(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length));
      options_.push_back({name, join(keys, "."), nlohmann::json::object(), line});
      option = &options_.back();
    }
    const std::string key = join(path, ".");
    if (!option->value.is_object()) fail_twice(key, line, option->line);
    nlohmann::json* place = &option->value;
    for (std::size_t i = length; i + 1 < path.size(); ++i) {
      place = &(*place)[path[i]];
      if (!place->is_null() && !place->is_object()) fail_twice(key, line, option->line);
    }
    const auto [known, is_new] = lines_.emplace(path, line);
    if (!is_new) fail_twice(key, line, known->second);
    if (place->contains(path.back())) fail_twice(key, line, option->line);
    (*place)[path.back()] = std::move(value);
    return;
  }
  const std::string name = option_name(path, path.size());
  if (const FileOption* const known = find(name)) fail_twice(join(path, "."), line, known->line);
  options_.push_back({name, join(path, "."), std::move(value), line});
}

// Iterates over a text and counts the lines that the JSON parser has consumed. Copies share the count.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_++ == '\n') ++*line_;
    return *this;
  }
  LineCounter operator++(int) {
    LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }
  bool operator!=(const LineCounter& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

// Passes the events of a JSON text to `reader`, which reports errors and limits the depth. `line` is the
// current line of the parser, from 1; in key() it is the line of the key. Text after the value is an error.
void parse_json_by_line(std::string_view text, nlohmann::json_sax<nlohmann::json>& reader, int& line) {
  line = 1;
  nlohmann::json::sax_parse(LineCounter(text.data(), &line), LineCounter(text.data() + text.size(), &line),
                            &reader);
}

// Passes the parser's events to a ConfigBuilder; the names of enclosing objects become the key's path.
class JsonConfigReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonConfigReader(ConfigBuilder& builder, const int& line) : builder_(builder), line_(line) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    if (!lists_.empty()) builder_.fail(line_, "a list holds texts, numbers and booleans, no objects");
    enter();
    path_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    path_.back() = name;
    key_line_ = line_;
    return true;
  }
  bool end_object() override {
    path_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    check_in_object();
    enter();
    lists_.push_back(nlohmann::json::array());
    return true;
  }
  bool end_array() override {
    nlohmann::json list = std::move(lists_.back());
    lists_.pop_back();
    return put(std::move(list));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    builder_.fail(line_, "not valid JSON: " + json_problem(error));
  }

 private:
  bool put(nlohmann::json value) {
    if (!lists_.empty()) {
      lists_.back().push_back(std::move(value));
      return true;
    }
    check_in_object();
    builder_.add(path_, std::move(value), key_line_);
    return true;
  }
  void check_in_object() const {
    if (path_.empty()) builder_.fail(line_, "expected a JSON object of options");
  }
  void enter() const {
    if (path_.size() + lists_.size() >= kDeepestConfig)
      builder_.fail(line_, str("more than ", kDeepestConfig, " nested levels"));
  }

  ConfigBuilder& builder_;
  const int& line_;
  std::vector<std::string> path_;
  std::vector<nlohmann::json> lists_;  // lists that are still open
  int key_line_ = 1;
};

// Limit on dots per line. toml++ 3.3 limits the nesting of values but not the parts of a dotted key, which it
// parses recursively: 300,000 parts overflow the stack.
constexpr std::int64_t kMostDotsOfLine = 2000;

void check_dots(std::string_view text, const ConfigBuilder& builder) {
  int line = 1;
  for (const std::string& words : split(std::string(text), '\n')) {
    if (std::count(words.begin(), words.end(), '.') > kMostDotsOfLine)
      builder.fail(line, str("more than ", kMostDotsOfLine, " dots on a line"));
    ++line;
  }
}

struct Leaf {
  std::vector<std::string> path;
  const toml::node* value;
  toml::source_position key;
};

class TomlOptions {
 public:
  explicit TomlOptions(ConfigBuilder& builder) : builder_(builder) {}

  void read(const toml::table& table) {
    collect(table, {});
    // toml++ sorts by name. Restores the file's order, because the error for an option that is set twice
    // depends on it.
    std::stable_sort(leaves_.begin(), leaves_.end(),
                     [](const Leaf& a, const Leaf& b) { return a.key < b.key; });
    for (const Leaf& leaf : leaves_) {
      const int line = static_cast<int>(leaf.key.line);
      builder_.add(leaf.path, value_of(*leaf.value, line, 1), line);
    }
  }

 private:
  void collect(const toml::table& table, const std::vector<std::string>& prefix) {
    for (const auto& [key, value] : table) {
      std::vector<std::string> path = prefix;
      path.emplace_back(key.str());
      if (const toml::table* const inner = value.as_table()) {
        check_depth(path.size(), static_cast<int>(key.source().begin.line));
        collect(*inner, path);
      } else {
        leaves_.push_back({std::move(path), &value, key.source().begin});
      }
    }
  }

  nlohmann::json value_of(const toml::node& node, int line, std::size_t depth) const {
    check_depth(depth, line);
    if (const auto text = node.value_exact<std::string>()) return *text;
    if (const auto truth = node.value_exact<bool>()) return *truth;
    if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
    if (const auto number = node.value_exact<double>()) {
      if (!std::isfinite(*number)) builder_.fail(line, "a number is neither inf nor nan");
      return *number;
    }
    const toml::array* const list = node.as_array();
    if (list == nullptr)
      builder_.fail(line, node.is_table() ? "a list holds texts, numbers and booleans, no tables"
                                          : "no option takes a date or a time; put a string in quotes");
    nlohmann::json items = nlohmann::json::array();
    for (const toml::node& item : *list)
      items.push_back(value_of(item, static_cast<int>(item.source().begin.line), depth + 1));
    return items;
  }

  void check_depth(std::size_t depth, int line) const {
    if (depth > std::size_t{kDeepestConfig})
      builder_.fail(line, str("more than ", kDeepestConfig, " nested levels"));
  }

  ConfigBuilder& builder_;
  std::vector<Leaf> leaves_;
};

// Parses TOML (see ConfigFormat) into `builder`. Throws UsageError.
void read_toml(std::string_view text, ConfigBuilder& builder) {
  check_dots(text, builder);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    builder.fail(static_cast<int>(error.source().begin.line), std::string(error.description()));
  }
  TomlOptions(builder).read(table);
}

std::string scalar_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool is_large_whole(const std::string& text) {
  std::uint64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  return error == std::errc() && end == text.data() + text.size() &&
         whole > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
}

const char* kind_name(const nlohmann::json& value) {
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "a boolean";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "a table";
  return "a number";
}

[[noreturn]] void refuse_type(const char* expected, const nlohmann::json& value) {
  throw UsageError(str("expected ", expected, ", not ", kind_name(value)));
}

std::string list_text(const nlohmann::json& list) {
  std::vector<std::string> items;
  for (const nlohmann::json& item : list) {
    if (item.is_structured() || item.is_null()) refuse_type("a list of texts or numbers", item);
    items.push_back(scalar_text(item));
    if (items.back().find(',') != std::string::npos)
      throw UsageError(
          str("'", printable(items.back()), "' has a comma, which separates the items of a list"));
  }
  return join(items, ",");
}

}  // namespace

std::vector<FileOption> parse_config(std::string_view text, const std::string& what, ConfigFormat format,
                                     const TakesObject& takes_object) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  ConfigBuilder builder(what, takes_object);
  int line = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) builder.fail(line, "the text is not UTF-8");
    if (text[at] == '\n') ++line;
    at += length;
  }
  if (trim(text).empty()) throw UsageError(str(what, ": the file is empty"));
  if (format == ConfigFormat::toml) {
    read_toml(text, builder);
  } else {
    JsonConfigReader reader(builder, line);
    parse_json_by_line(text, reader, line);
  }
  return builder.take();
}

std::vector<FileOption> read_config_file(const fs::path& path, const TakesObject& takes_object) {
  const std::string extension = path.extension().string();
  if (extension != ".toml" && extension != ".json")
    throw UsageError(str("--config ", path.string(), ": expected a file that ends in .toml or .json"));
  std::string text;
  try {
    text = read_regular_file(path, kLargestConfig);
  } catch (const DataError& error) {
    throw UsageError(str("--config: ", error.what()));
  }
  return parse_config(text, path.string(), extension == ".toml" ? ConfigFormat::toml : ConfigFormat::json,
                      takes_object);
}

std::string option_text(const Option& option, const nlohmann::json& value) {
  if (value.is_null()) return {};
  if (value.is_object()) {
    if (!option.takes_object) refuse_type("a value", value);
    return value.dump();
  }
  if (value.is_array()) {
    if (option.kind != OptionKind::list) refuse_type("one value", value);
    return list_text(value);
  }
  // An integer option with its own check also accepts words ("auto"). TOML has no integers of 2^63 or more,
  // so those are accepted as strings.
  const bool takes_words = option.allowed.check != nullptr ||
                           (value.is_string() && is_large_whole(value.get_ref<const std::string&>()));
  switch (option.kind) {
    case OptionKind::toggle:
      if (!value.is_boolean()) refuse_type("true or false", value);
      break;
    case OptionKind::integer:
      if (!value.is_number_integer() && !(value.is_string() && takes_words))
        refuse_type(value.is_number() ? "a whole number" : "a number", value);
      break;
    case OptionKind::number:
      if (!value.is_number()) refuse_type("a number", value);
      break;
    case OptionKind::text:
    case OptionKind::list:
      break;
  }
  return scalar_text(value);
}

}  // namespace rondo
