#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rondo {

// One flag, option, argument or command in help.
struct HelpEntry {
  std::string left;  // "--lr X=0.001"
  std::string text;
};
struct HelpGroup {
  std::string title;
  std::vector<HelpEntry> entries;
};

// Returns the groups in the one layout that all programs have, wrapped to the terminal's width ($COLUMNS,
// else 80). No line begins with a flag that is not an entry's own.
std::string layout_groups(const std::vector<HelpGroup>& groups);

// Adds an entry to the group of this title, which is made at the end where there is none.
void add_help_entry(std::vector<HelpGroup>& groups, const std::string& title, HelpEntry entry);

// "--lr X=0.001": a flag with the type of its value, empty for a switch, and its default, empty for none.
std::string help_name(const std::string& flag, const std::string& type, const std::string& default_text);

// Gives `app` and its subcommands the help of all programs, with --help, --help-all (of all subcommands, too)
// and --version. `arguments` follow the flags in the usage, besides those that `app` declares.
void use_rondo_help(CLI::App& app, const std::string& arguments = "");

// Returns the line that --version prints: "rondo 0.1.0".
std::string version_line();

}  // namespace rondo
