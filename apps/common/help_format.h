#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rondo {

// A flag, option, argument or command in help.
struct HelpEntry {
  std::string left;  // "--lr X=0.001"
  std::string text;
};
struct HelpGroup {
  std::string title;
  std::vector<HelpEntry> entries;
};

// Returns the groups in the common layout, wrapped to the terminal's width ($COLUMNS, else 80). Only the
// explained flags begin a line.
std::string layout_groups(const std::vector<HelpGroup>& groups);

// Adds an entry to the group with this title; appends the group if it does not exist.
void add_help_entry(std::vector<HelpGroup>& groups, const std::string& title, HelpEntry entry);

// Returns "--lr X=0.001": a flag with its value's type (empty for a switch) and its default (empty for none).
std::string help_name(const std::string& flag, const std::string& type, const std::string& default_text);

// Gives `app` and its subcommands rondo's help, with --help, --help-all (including all subcommands) and
// --version. `arguments` is appended to the flags in the usage line, after those that `app` declares.
void use_rondo_help(CLI::App& app, const std::string& arguments = "");

// Returns the line that --version prints: "rondo 0.1.0".
std::string version_line();

}  // namespace rondo
