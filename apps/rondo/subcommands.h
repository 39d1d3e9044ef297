#pragma once

#include <optional>
#include <string>
#include <vector>

// Subcommands are separate programs named rondo-<subcommand> beside this program, as in git; `run` and
// `completion` are parts of this program.

namespace CLI {
class App;
}

// Parses the words after the name of a part of this program. Returns the exit code if they ask for help or
// the version, which it prints. Throws rondo::UsageError for wrong usage.
std::optional<int> parse_arguments(CLI::App& app, std::vector<std::string> arguments);

// A known subcommand.
struct Subcommand {
  const char* name;
  const char* help;             // one line
  bool links_libtorch = false;  // whether its program links libtorch
};
// Returns those that are separate programs.
const std::vector<Subcommand>& known_subcommands();

// Replaces this process by the subcommand's program. Throws rondo::UsageError if the name is unknown or its
// program does not exist. For a program that links libtorch it throws as use_libtorch() does. Does not
// return.
[[noreturn]] void exec_subcommand(const std::string& name, const std::vector<std::string>& arguments);

// Returns the path of the subcommand's program; throws rondo::UsageError as exec_subcommand() does.
std::string subcommand_program(const std::string& name);
