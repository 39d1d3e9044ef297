#include "apps/train/print_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::size_t kOriginColumn = 40;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += str("\\", std::string(1, c));
    } else if (byte < 0x20 || byte == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", byte);
      result += escape.data();
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string toml_value(OptionKind kind, const std::string& text) {
  switch (kind) {
    case OptionKind::toggle:
      return text == "true" || text == "1" ? "true" : "false";
    case OptionKind::integer: {
      std::int64_t whole = 0;  // TOML has no larger ones: a seed of 2^63 or more stands in quotes
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
      return error == std::errc() && end == text.data() + text.size() ? text : quoted(text);
    }
    case OptionKind::number: {
      std::array<char, 32> digits{};
      const double number = parse_number(text, "");
      return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
    }
    case OptionKind::list: {
      std::vector<std::string> items;
      for (const std::string& item : split(text, ',')) items.push_back(quoted(item));
      return "[" + join(items, ", ") + "]";
    }
    case OptionKind::text:
      break;
  }
  return quoted(text);
}

std::string origin_text(const TrainFlags& flags, const std::string& name) {
  const auto origin = flags.origins.find(name);
  if (origin == flags.origins.end()) return "default";
  if (origin->second.source == OptionSource::file) {
    std::string place = origin->second.place;
    std::replace(place.begin(), place.end(), '\n', ' ');
    return place;
  }
  return origin->second.source == OptionSource::set ? "--set" : "flag";
}

}  // namespace

std::string config_text(const FlagSet& set, const TrainFlags& flags) {
  std::string text = "# Options of rondo train: value and origin\n", group;
  for (const Flag& flag : set.flags()) {
    const Option& option = flag.option;
    if (option.group != group) text += str("\n# ", group = option.group, "\n");
    const std::string value = set.value_of(flag, flags);
    std::string line = value.empty() ? str("# ", option.name, " is not set")
                                     : str(option.name, " = ", toml_value(option.kind, value));
    if (!value.empty()) {
      line.resize(std::max(line.size() + 2, kOriginColumn), ' ');
      line += "# " + origin_text(flags, option.name);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace rondo
