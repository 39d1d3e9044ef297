#include "apps/common/help_format.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace rondo {
namespace {

constexpr std::size_t kLeftWidth = 28;
constexpr std::size_t kUsualWidth = 80;
constexpr std::size_t kLeastWidth = 60;
constexpr std::size_t kMostWidth = 120;

std::size_t help_width() {
  const char* const columns = std::getenv("COLUMNS");
  const int width = columns == nullptr ? 0 : std::atoi(columns);
  return width <= 0 ? kUsualWidth
                    : std::clamp<std::size_t>(static_cast<std::size_t>(width), kLeastWidth, kMostWidth);
}

// Wraps `text`, which begins at `column` of the first line; further lines begin at kLeftWidth.
std::string wrapped(const std::string& text, std::size_t column) {
  const std::size_t width = help_width();
  std::string result;
  bool begins = true;
  for (const std::string& word : split(text, ' ')) {
    // A flag in a text stays after the preceding word, so that only the explained flags begin a line.
    const bool fits = column + 1 + word.size() <= width || word.starts_with("--");
    if (!begins && !fits) {
      result += "\n" + std::string(kLeftWidth, ' ');
      column = kLeftWidth;
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

// Breaks a left side that is wider than the terminal (a flag with many names) after commas.
std::string broken_left(const std::string& left) {
  constexpr std::size_t kIndent = 6;
  std::string result;
  std::size_t column = 2;
  for (std::size_t at = 0; at < left.size();) {
    const std::size_t end = std::min(left.find(',', at), left.size() - 1) + 1;
    if (column + (end - at) > help_width() && at > 0) {
      result += "\n" + std::string(kIndent, ' ');
      column = kIndent;
    }
    result += left.substr(at, end - at);
    column += end - at;
    at = end;
  }
  return result;
}

std::string layout_entry(const HelpEntry& entry) {
  std::string line = "  " + broken_left(entry.left);
  if (entry.text.empty()) return line + "\n";
  if (line.size() + 2 > kLeftWidth) {
    line += "\n" + std::string(kLeftWidth, ' ');
  } else {
    line.resize(kLeftWidth, ' ');
  }
  return line + wrapped(entry.text, kLeftWidth) + "\n";
}

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
    add_help_entry(
        groups, title,
        {is_argument ? argument_name(*option)
                     : help_name(flag_names(*option), value_type(*option), option->get_default_str()),
         text});
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
      add_help_entry(groups, "Commands", {command->get_name(), command->get_description()});
  }
  return groups;
}

class RondoFormatter : public CLI::FormatterBase {
 public:
  explicit RondoFormatter(std::string arguments) : arguments_(std::move(arguments)) {}
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text =
        app->get_description() + "\n" + usage_of(*app, name) + "\n" + layout_groups(groups_of(*app));
    if (const std::string footer = app->get_footer(); !footer.empty()) text += "\n" + footer + "\n";
    if (mode != CLI::AppFormatMode::All) return text;
    for (const CLI::App* const command : app->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->get_group().empty()) continue;
      text += "\n" + std::string(2, '\n') + make_help(command, str(name, " ", command->get_name()), mode);
    }
    return text;
  }

 private:
  std::string usage_of(const CLI::App& app, const std::string& name) const {
    std::string usage = str("Usage: ", name, " [OPTIONS]");
    bool has_commands = false;
    for (const CLI::Option* const option : app.get_options()) {
      if (option->get_lnames().empty() && option->get_snames().empty()) usage += " " + argument_name(*option);
    }
    for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
      has_commands = has_commands || !command->get_group().empty();
    if (!arguments_.empty()) usage += " " + arguments_;
    return usage + (has_commands ? " COMMAND\n" : "\n");
  }

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

std::string layout_groups(const std::vector<HelpGroup>& groups) {
  std::string text;
  for (const HelpGroup& group : groups) {
    text += str(text.empty() ? "" : "\n", group.title, ":\n");
    for (const HelpEntry& entry : group.entries) text += layout_entry(entry);
  }
  return text;
}

void add_help_entry(std::vector<HelpGroup>& groups, const std::string& title, HelpEntry entry) {
  auto group =
      std::find_if(groups.begin(), groups.end(), [&](const HelpGroup& each) { return each.title == title; });
  if (group == groups.end()) group = groups.insert(groups.end(), HelpGroup{title, {}});
  group->entries.push_back(std::move(entry));
}

std::string help_name(const std::string& flag, const std::string& type, const std::string& default_text) {
  if (type.empty()) return flag;
  return str(flag, " ", type, default_text.empty() ? "" : "=" + default_text);
}

void use_rondo_help(CLI::App& app, const std::string& arguments) {
  set_formatter(app, std::make_shared<RondoFormatter>(arguments));
  add_help_flags(app);
}

std::string version_line() { return str("rondo ", kVersion); }

}  // namespace rondo
