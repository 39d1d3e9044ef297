#include "completion_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/common/child_output.h"
#include "apps/common/command_line.h"
#include "apps/common/libtorch_location.h"
#include "completion_scripts.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "run_command.h"
#include "subcommands.h"

namespace {

using rondo::str;
using rondo::UsageError;

constexpr const char* kCompletionSummary = "Prints the completion script of a shell.";
constexpr const char* kCompletionName = "rondo completion";

struct CompletionFlags {
  std::string shell;
  std::string from;
};

void declare_completion(CLI::App& app, CompletionFlags& flags) {
  app.add_option("SHELL", flags.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.add_option("--from", flags.from,
                 "Read the commands from this file, the output of 'rondo --help-json', instead of asking the "
                 "programs")
      ->type_name("FILE");
  app.footer(
      "Prints a script that completes rondo's commands, flags and values. 'make install' and the packages "
      "install "
      "the scripts where shells look for them (docs/install.md).\n\n"
      "Examples:\n"
      "  rondo completion bash > ~/.local/share/bash-completion/completions/rondo\n"
      "  rondo completion zsh > ~/.zfunc/_rondo            # a folder of $fpath\n"
      "  rondo completion fish > ~/.config/fish/completions/rondo.fish");
  rondo::use_rondo_help(app);
}

// Returns the page of a subcommand's program, as the program prints it.
nlohmann::ordered_json page_of_program(const Subcommand& command) {
  const std::string program = subcommand_program(command.name);
  const rondo::ChildOutput output = rondo::run_child({program, rondo::kHelpJsonFlag},
                                                     {{rondo::kStarterVariable, rondo::program_identity()}});
  if (output.exit_code != 0) throw rondo::Error(str(program, " ended with exit code ", output.exit_code));
  return rondo::parse_json_strict(output.text, program);
}

nlohmann::ordered_json page_of_completion() {
  CompletionFlags flags;
  CLI::App app(kCompletionSummary, kCompletionName);
  declare_completion(app, flags);
  return rondo::help_to_json(rondo::help_page(app));
}

}  // namespace

nlohmann::ordered_json help_of_all_commands(const rondo::HelpPage& front) {
  std::string no_libtorch;
  try {
    rondo::use_libtorch();
  } catch (const rondo::Error& error) {
    no_libtorch = error.what();
  }
  // A program on libtorch takes a while to start.
  std::vector<std::future<nlohmann::ordered_json>> pages;
  for (const Subcommand& command : known_subcommands()) {
    pages.push_back(std::async(std::launch::async, [&] {
      if (command.links_libtorch && !no_libtorch.empty()) throw rondo::Error(no_libtorch);
      return page_of_program(command);
    }));
  }
  nlohmann::ordered_json all = rondo::help_to_json(front);
  nlohmann::ordered_json& commands = all["commands"] = nlohmann::ordered_json::array();
  commands.push_back(rondo::help_to_json(page_of_run_command()));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const Subcommand& command = known_subcommands()[i];
    try {
      commands.push_back(pages[i].get());
    } catch (const rondo::Error& error) {
      rondo::print_error("rondo", str("without the flags of 'rondo ", command.name, "': ", error.what()));
      const std::string name = str("rondo ", command.name);
      commands.push_back(
          rondo::help_to_json({.name = name, .summary = command.help, .usage = name, .groups = {}}));
    }
  }
  commands.push_back(page_of_completion());
  return all;
}

int completion_command(std::vector<std::string> arguments, const rondo::HelpPage& front) {
  CompletionFlags flags;
  CLI::App app(kCompletionSummary, kCompletionName);
  declare_completion(app, flags);
  if (arguments == std::vector<std::string>{rondo::kHelpJsonFlag}) {
    std::cout << page_of_completion().dump() << "\n";
    return 0;
  }
  if (const auto code = parse_arguments(app, std::move(arguments))) return *code;
  const nlohmann::ordered_json all =
      flags.from.empty() ? help_of_all_commands(front) : rondo::read_json_file(flags.from);
  std::vector<CompletedCommand> commands;
  try {
    commands = completed_commands(all);
  } catch (const nlohmann::ordered_json::exception&) {
    throw UsageError(str("--from ", flags.from, " is not the output of 'rondo --help-json'"));
  }
  std::cout << (flags.shell == "bash"  ? bash_completion(commands)
                : flags.shell == "zsh" ? zsh_completion(commands)
                                       : fish_completion(commands));
  return 0;
}
