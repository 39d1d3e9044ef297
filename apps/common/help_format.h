#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rondo {

// A flag, option, argument or command in help.
struct HelpEntry {
  std::string name;       // "--lr", "-n,--nproc-per-node", "RUN_DIR", "inspect"
  std::string type = {};  // type of its value, as "X", "FILE" or "{adam,sgd}"; empty: it takes no value
  std::string default_text = {};  // empty: none
  std::string text = {};

  std::string left() const;  // "--lr X=0.001"
};
struct HelpGroup {
  std::string title;
  std::vector<HelpEntry> entries;
};

// The help of a command, from which --help, the manual page and completion are generated.
struct HelpPage {
  std::string name;     // "rondo checkpoint inspect"
  std::string summary;  // one sentence or more
  std::string usage;    // "rondo checkpoint inspect [OPTIONS] CHECKPOINT"
  std::vector<HelpGroup> groups;
  std::string footer = {};              // examples; commands are indented, prose is not
  std::vector<HelpPage> commands = {};  // pages of the subcommands
};

// Returns the page as text in the common layout: wrapped to text_width() of standard output, at most 120
// columns, and coloured if that is a terminal. On a terminal long examples are broken too, so that a copied
// one still runs. With `all` the pages of the commands follow.
std::string help_text(const HelpPage& page, bool all = false);

// Returns {"name", "summary", "usage", "groups": [{"title", "entries": [{"names", "type", "default",
// "choices", "text"}]}], "footer", "commands"}. "choices" are the values in `type` that are written as they
// stand.
nlohmann::ordered_json help_to_json(const HelpPage& page);

// The flag that prints help_to_json(), of every program and of `rondo`.
inline constexpr const char* kHelpJsonFlag = "--help-json";

// Returns the page of `app` and its subcommands. `arguments` is appended to the flags in the usage line,
// after those that `app` declares.
HelpPage help_page(const CLI::App& app, const std::string& arguments = "");

// Adds an entry to the group with this title; appends the group if it does not exist.
void add_help_entry(std::vector<HelpGroup>& groups, const std::string& title, HelpEntry entry);

// Gives `app` and its subcommands rondo's help, with --help, --help-all (including all subcommands) and
// --version. `arguments` is that of help_page().
void use_rondo_help(CLI::App& app, const std::string& arguments = "");

// Returns the line that --version prints: "rondo 0.2.0".
std::string version_line();

}  // namespace rondo
