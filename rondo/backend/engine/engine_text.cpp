#include "rondo/backend/engine/engine_text.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Calls take(part) for each part of `text` between commas; commas in brackets separate nothing.
template <class Take>
void for_each_argument(const std::string& text, const Take& take) {
  int depth = 0;
  std::string argument;
  const auto end_argument = [&] {
    if (const std::string_view trimmed = trim(argument); !trimmed.empty()) take(std::string(trimmed));
    argument.clear();
  };
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth < 0) throw UsageError("unexpected closing bracket");
    if (c == ',' && depth == 0) {
      end_argument();
    } else {
      argument += c;
    }
  }
  if (depth > 0) throw UsageError("the closing bracket is missing");
  end_argument();
}

// Returns the key of "key=value", or an empty string for an argument without one.
std::string key_of_argument(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos) return {};
  std::string key(trim(argument.substr(0, equals)));
  std::replace(key.begin(), key.end(), '_', '-');
  const bool is_name = std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  return is_name ? key : std::string();
}

// Returns the value of "key=value"; brackets around the whole value protect its commas.
std::string value_of_argument(const std::string& argument) {
  const std::string value(trim(argument.substr(argument.find('=') + 1)));
  return value.starts_with('(') && value.ends_with(')') ? value.substr(1, value.size() - 2) : value;
}

// Returns null if no option, or more than one, matches.
const Option* option_meant(const OptionTable& table, const std::string& key) {
  if (const Option* const exact = table.find(key)) return exact;
  const Option* found = nullptr;
  for (const Option& option : table.options()) {
    if (!option.name.ends_with("-" + key)) continue;
    if (found != nullptr) return nullptr;
    found = &option;
  }
  return found;
}

std::string options_there_are(const OptionTable& table) {
  std::vector<std::string> names;
  for (const Option& option : table.options()) names.push_back(option.name);
  return names.empty() ? "it takes no options" : "its options are " + join(names, ", ");
}

void check_named_engine(const std::string& text, const std::vector<Declaration>& engines) {
  const EngineText engine = split_engine(text);
  if (is_of_module(engine)) return;
  const Declaration* const declared = find_declaration(engines, engine.name);
  if (declared == nullptr) {
    std::vector<std::string> names;
    for (const Declaration& each : engines) names.push_back(each.name);
    throw UsageError(str("expected one of ", join(names, ", "), ", or path/to/module.so:name"));
  }
  const OptionValues values = options_in_brackets(engine, *declared);
  declared->options.read(values);
  for (const auto& [name, value] : values) {
    if (declared->options.find(name)->type != kEngineOption) continue;
    try {
      check_named_engine(value, engines);
    } catch (const UsageError& error) {
      throw UsageError(str("--", name, " ", value, ": ", error.what()));
    }
  }
}

}  // namespace

EngineText split_engine(const std::string& text) {
  const std::size_t open = text.find('(');
  if (open == std::string::npos) return {text};
  if (!text.ends_with(')')) throw UsageError("the closing bracket is missing");
  EngineText engine{std::string(trim(text.substr(0, open)))};
  for_each_argument(text.substr(open + 1, text.size() - open - 2),
                    [&](std::string argument) { engine.arguments.push_back(std::move(argument)); });
  return engine;
}

std::string engine_of_auto(bool one_host) { return one_host ? "native" : "hierarchical(native, gloo)"; }

bool is_of_module(const EngineText& engine) { return engine.name.find(".so:") != std::string::npos; }

OptionValues options_in_brackets(const EngineText& engine, const Declaration& declared) {
  const OptionTable& table = declared.options;
  OptionValues values;
  std::size_t place = 0;
  for (const std::string& argument : engine.arguments) {
    const std::string key = key_of_argument(argument);
    const Option* option = nullptr;
    if (!key.empty()) {
      option = option_meant(table, key);
    } else if (place < table.options().size()) {
      option = &table.options()[place++];
    }
    if (option == nullptr) {
      throw UsageError(
          str("'", argument, "' is no option of ", declared.name, "; ", options_there_are(table)));
    }
    const std::string value = key.empty() ? argument : value_of_argument(argument);
    if (!values.emplace(option->name, value).second)
      throw UsageError(str("'", argument, "': --", option->name, " is ", values[option->name], " already"));
  }
  return values;
}

std::string engine_with_options(const std::string& name, const OptionValues& options) {
  if (options.empty()) return name;
  std::vector<std::string> arguments;
  for (const auto& [option, value] : options) {
    const bool is_plain = value.find_first_of(",()") == std::string::npos;
    arguments.push_back(is_plain ? str(option, "=", value) : str(option, "=(", value, ")"));
  }
  return str(name, "(", join(arguments, ", "), ")");
}

void check_engine(const std::string& text, const std::string& what, const std::vector<Declaration>& engines) {
  if (text == "auto") return;
  try {
    check_named_engine(text, engines);
  } catch (const UsageError& error) {
    throw UsageError(str(what, " ", text, ": ", error.what()));
  }
}

}  // namespace rondo
