#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

#include "rondo/base/text.h"
#include "rondo/options/config_builder.h"

namespace rondo {
namespace {

// toml++ 3.3 limits how deep values stand inside each other, but not the parts of a dotted key, and descends
// by recursion: 300,000 parts overflow the stack.
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
    // toml++ sorts by name; what is said of an option that is set twice depends on which came first.
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
                                          : "no option takes a date or a time; a text stands in quotes");
    nlohmann::json items = nlohmann::json::array();
    for (const toml::node& item : *list)
      items.push_back(value_of(item, static_cast<int>(item.source().begin.line), depth + 1));
    return items;
  }

  void check_depth(std::size_t depth, int line) const {
    if (depth > std::size_t{kDeepestConfig})
      builder_.fail(line, str("more than ", kDeepestConfig, " levels inside each other"));
  }

  ConfigBuilder& builder_;
  std::vector<Leaf> leaves_;
};

}  // namespace

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

}  // namespace rondo
