#include "apps/common/help_format.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "rondo/base/terminal.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace rondo {
namespace {

constexpr std::size_t kMostLeft =
    28;                              // columns of the names, including the indentation and the gap after them
constexpr std::size_t kNarrow = 60;  // narrower terminals: descriptions are below the names
constexpr std::size_t kNarrowIndent = 6;  // indentation of descriptions below the names
constexpr std::size_t kLeastWidth = 20;
constexpr std::size_t kMostWidth = 120;

// Lays out one page.
class Layout {
 public:
  Layout()
      : columns_(static_cast<std::size_t>(text_width(STDOUT_FILENO))),
        width_(std::clamp(columns_, kLeastWidth, kMostWidth)),
        breaks_commands_(isatty(STDOUT_FILENO) == 1),
        colours_(wants_colours(STDOUT_FILENO)) {}

  std::string page(const HelpPage& page) {
    std::size_t widest = 0;
    for (const HelpGroup& group : page.groups) {
      for (const HelpEntry& entry : group.entries) widest = std::max(widest, entry.left().size() + 4);
    }
    left_ = width_ < kNarrow ? kNarrowIndent : std::min(widest, kMostLeft);
    std::string text = lines_of(page.summary) + colours_.heading("Usage:") +
                       wrapped(" " + page.usage, std::string_view("Usage:").size(), kNarrowIndent) + "\n";
    for (const HelpGroup& group : page.groups) {
      text += "\n" + colours_.heading(group.title + ":") + "\n";
      for (const HelpEntry& entry : group.entries) text += layout_entry(entry);
    }
    return page.footer.empty() ? text : text + "\n" + lines_of(page.footer);
  }

 private:
  // Wraps `text`, which begins at `column` of the first line; further lines begin at `indent`.
  std::string wrapped(const std::string& text, std::size_t column, std::size_t indent) const {
    std::string result;
    bool begins = true;
    for (const std::string& word : split(text, ' ')) {
      // A flag in a text stays after the preceding word, so that only the explained flags begin a line.
      const bool fits = column + 1 + word.size() <= width_ || word.starts_with("--");
      if (!begins && !fits) {
        result += "\n" + std::string(indent, ' ');
        column = indent;
      } else if (!begins) {
        result += ' ';
        ++column;
      }
      result += word;
      column += word.size();
      begins = false;
    }
    return result;
  }

  // Breaks a left side that is wider than the terminal (a flag with many names or values) after commas.
  std::string broken_left(const std::string& left) const {
    std::string result;
    std::size_t column = 2;
    for (std::size_t at = 0; at < left.size();) {
      const std::size_t end = std::min(left.find(',', at), left.size() - 1) + 1;
      if (column + (end - at) > width_ && at > 0) {
        result += "\n" + std::string(kNarrowIndent, ' ');
        column = kNarrowIndent;
      }
      result += left.substr(at, end - at);
      column += end - at;
      at = end;
    }
    return result;
  }

  std::string layout_entry(const HelpEntry& entry) const {
    const std::string left = entry.left();
    std::string line = broken_left(left);
    if (line.starts_with(entry.name)) line = colours_.name(entry.name) + line.substr(entry.name.size());
    line.insert(0, "  ");
    if (entry.text.empty()) return line + "\n";
    if (left.size() + 4 > left_) {
      line += "\n" + std::string(left_, ' ');
    } else {
      line += std::string(left_ - left.size() - 2, ' ');
    }
    return line + wrapped(entry.text, left_, left_) + "\n";
  }

  // Wraps prose, keeps the lines that are indented, and marks the headings.
  std::string lines_of(const std::string& text) const {
    std::string result;
    for (const std::string& line : split(text, '\n')) {
      const bool is_indented = line.starts_with(" ");
      if (is_indented) {
        result += columns_ < line.size() && breaks_commands_ ? broken_command(line) : line;
      } else {
        result += line.ends_with(":") ? colours_.heading(line) : wrapped(line, 0, 0);
      }
      result += "\n";
    }
    return result;
  }

  // Breaks a command that is wider than the terminal before its flags, with backslashes, and puts its remark
  // above.
  std::string broken_command(const std::string& line) const {
    const std::size_t indent = line.find_first_not_of(' ');
    const std::size_t hash = line.find("  # ");
    std::string result;
    if (hash != std::string::npos)
      result = std::string(indent, ' ') + wrapped(line.substr(line.find('#')), indent, indent + 2) + "\n";
    if (line[indent] == '#')
      return std::string(indent, ' ') + wrapped(line.substr(indent), indent, indent + 2);
    const std::string command = std::string(trim(line.substr(0, hash)));
    std::string piece = std::string(indent, ' ');
    std::size_t begin = 0;
    while (begin < command.size()) {
      const std::size_t end = next_flag(command, begin);
      const std::string words = command.substr(begin, end - begin);
      // Two columns for " \\".
      if (begin > 0 && piece.size() + words.size() + 2 > columns_) {
        result += piece + " \\\n";
        piece = std::string(indent + 4, ' ') + std::string(trim(words));
      } else {
        piece += words;
      }
      begin = end;
    }
    return result + piece;
  }

  // Returns the position of the next " -" outside of quotes after `from`, or the end.
  static std::size_t next_flag(const std::string& command, std::size_t from) {
    char quote = '\0';
    for (std::size_t i = from; i < command.size(); ++i) {
      const char c = command[i];
      if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (i > from && c == ' ' && i + 1 < command.size() && command[i + 1] == '-') {
        return i;
      }
    }
    return command.size();
  }

  std::size_t columns_;  // of the terminal
  std::size_t width_;    // that prose is wrapped to
  bool breaks_commands_;
  TextColours colours_;
  std::size_t left_ = kMostLeft;
};

// Returns "{csv,jsonl}", "N" or "FILE".
std::string value_type(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  if (const std::size_t names = type.find(":{"); names != std::string::npos) return type.substr(names + 1);
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "X" : type;
}

// Returns "-n,--nproc-per-node": the spellings with '-'.
std::string flag_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    if (name.find('_') == std::string::npos) names.push_back("--" + name);
  }
  return join(names, ",");
}

std::string argument_name(const CLI::Option& option) {
  const std::string name = option.get_name(true);
  return option.get_required() ? name : str("[", name, "]");
}

// Returns "all" and "data" of "{all,data}" or "data|all", without placeholders such as "N" and "cuda:N".
std::vector<std::string> choices_in(const std::string& type) {
  const bool is_set = type.starts_with("{") && type.ends_with("}");
  if (!is_set && type.find('|') == std::string::npos) return {};
  std::vector<std::string> choices = is_set ? split(type.substr(1, type.size() - 2), ',') : split(type, '|');
  std::erase_if(choices, [](const std::string& choice) {
    return std::any_of(choice.begin(), choice.end(), [](unsigned char c) { return c == ':' || c == '.'; }) ||
           std::all_of(choice.begin(), choice.end(), [](unsigned char c) { return std::isupper(c) != 0; });
  });
  return choices;
}

std::vector<HelpGroup> groups_of(const CLI::App& app) {
  std::vector<HelpGroup> groups;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const bool is_argument = option->get_lnames().empty() && option->get_snames().empty();
    const std::string text =
        option->get_description() + (option->get_required() && !is_argument ? " (required)" : "");
    const std::string title = is_argument                        ? "Arguments"
                              : option->get_group() == "OPTIONS" ? "Options"
                                                                 : option->get_group();
    if (is_argument) {
      const std::string type = value_type(*option);
      add_help_entry(
          groups, title,
          {.name = argument_name(*option), .type = type.starts_with("{") ? type : "", .text = text});
    } else {
      add_help_entry(groups, title,
                     {.name = flag_names(*option),
                      .type = value_type(*option),
                      .default_text = option->get_default_str(),
                      .text = text});
    }
  }
  // Arguments first, then groups in the order of declaration; help itself is last.
  std::stable_sort(groups.begin(), groups.end(), [](const HelpGroup& a, const HelpGroup& b) {
    const auto rank = [](const HelpGroup& group) {
      return group.title == "Arguments" ? 0 : group.title == "Help" ? 2 : 1;
    };
    return rank(a) < rank(b);
  });
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty())
      add_help_entry(groups, "Commands", {.name = command->get_name(), .text = command->get_description()});
  }
  return groups;
}

std::string usage_of(const CLI::App& app, const std::string& name, const std::string& arguments) {
  std::string usage = name + " [OPTIONS]";
  bool has_commands = false;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_lnames().empty() && option->get_snames().empty()) usage += " " + argument_name(*option);
  }
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    has_commands = has_commands || !command->get_group().empty();
  if (!arguments.empty()) usage += " " + arguments;
  return usage + (has_commands ? " COMMAND" : "");
}

HelpPage page_of(const CLI::App& app, const std::string& name, const std::string& arguments) {
  HelpPage page{.name = name,
                .summary = app.get_description(),
                .usage = usage_of(app, name, arguments),
                .groups = groups_of(app),
                .footer = app.get_footer()};
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty())
      page.commands.push_back(page_of(*command, str(name, " ", command->get_name()), ""));
  }
  return page;
}

class RondoFormatter : public CLI::FormatterBase {
 public:
  explicit RondoFormatter(std::string arguments) : arguments_(std::move(arguments)) {}
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return help_text(page_of(*app, name, arguments_), mode == CLI::AppFormatMode::All);
  }

 private:
  std::string arguments_;
};

void add_help_flags(CLI::App& app) {
  app.set_help_flag("-h,--help", "Print this help")->group("Help");
  app.set_help_all_flag("--help-all", "Print the help of every command and flag")->group("Help");
  app.set_version_flag("--version", version_line(), "Print the version")->group("Help");
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    add_help_flags(*command);
}

void set_formatter(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    set_formatter(*command, formatter);
}

}  // namespace

std::string HelpEntry::left() const {
  if (type.empty()) return name;
  return str(name, " ", type, default_text.empty() ? "" : "=" + default_text);
}

std::string help_text(const HelpPage& page, bool all) {
  std::string text = Layout().page(page);
  if (!all) return text;
  for (const HelpPage& command : page.commands) text += "\n\n\n" + help_text(command, all);
  return text;
}

nlohmann::ordered_json help_to_json(const HelpPage& page) {
  using Json = nlohmann::ordered_json;
  Json json{{"name", page.name}, {"summary", page.summary}, {"usage", page.usage}};
  Json& groups = json["groups"] = Json::array();
  for (const HelpGroup& group : page.groups) {
    Json entries = Json::array();
    for (const HelpEntry& entry : group.entries) {
      entries.push_back({{"names", split(entry.name, ',')},
                         {"type", entry.type},
                         {"default", entry.default_text},
                         {"choices", choices_in(entry.type)},
                         {"text", entry.text}});
    }
    groups.push_back({{"title", group.title}, {"entries", std::move(entries)}});
  }
  json["footer"] = page.footer;
  Json& commands = json["commands"] = Json::array();
  for (const HelpPage& command : page.commands) commands.push_back(help_to_json(command));
  return json;
}

HelpPage help_page(const CLI::App& app, const std::string& arguments) {
  return page_of(app, app.get_name(), arguments);
}

void add_help_entry(std::vector<HelpGroup>& groups, const std::string& title, HelpEntry entry) {
  auto group =
      std::find_if(groups.begin(), groups.end(), [&](const HelpGroup& each) { return each.title == title; });
  if (group == groups.end()) group = groups.insert(groups.end(), HelpGroup{title, {}});
  group->entries.push_back(std::move(entry));
}

void use_rondo_help(CLI::App& app, const std::string& arguments) {
  set_formatter(app, std::make_shared<RondoFormatter>(arguments));
  add_help_flags(app);
}

std::string version_line() { return str("rondo ", kVersion); }

}  // namespace rondo
