#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

// The values that a shell offers for a flag or an argument.
enum class CompletedValue { none, words, files, folders };

// A flag as a shell completes it.
struct CompletedFlag {
  std::vector<std::string> names;  // "-n", "--nproc-per-node"
  std::string text;
  std::string type;  // type of the flag's value; empty: the flag takes no value
  CompletedValue value = CompletedValue::none;
  std::vector<std::string> words;  // of CompletedValue::words
  bool may_repeat = false;
};

// A command as a shell completes it.
struct CompletedCommand {
  std::vector<std::string> path;  // {"rondo", "checkpoint", "inspect"}
  std::string summary;
  std::vector<CompletedFlag> flags;
  CompletedValue arguments = CompletedValue::files;
  std::vector<std::string> words;                             // of CompletedValue::words
  std::vector<std::pair<std::string, std::string>> commands;  // names and summaries of its subcommands
  bool runs_program = false;  // whether the remaining words are another program's command line
};

// Returns the commands of the output of `rondo --help-json`, a command before those below it. Throws
// nlohmann::json::exception for another document.
std::vector<CompletedCommand> completed_commands(const nlohmann::ordered_json& help);

// Return a script that completes `commands` in the shell.
std::string bash_completion(const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::vector<CompletedCommand>& commands);
