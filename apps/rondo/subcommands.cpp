#include "subcommands.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

using rondo::str;
using rondo::UsageError;

const std::vector<Subcommand>& known_subcommands() {
  static const std::vector<Subcommand> commands = {
      {"train", "train a built-in model on your data"},
      {"bench", "measure collectives, training steps and start-up, next to their peers"},
      {"profile", "measure a model and the link between ranks, for planning"},
      {"plan", "the best strategy per layer and schedule for a memory limit"},
      {"simulate", "predict a training step on up to 16,384 ranks"},
      {"checkpoint", "look into checkpoints and verify them"},
      {"report", "one self-contained HTML page of a run"},
      {"doctor", "what this machine offers, what is missing, and how to get it"},
  };
  return commands;
}

std::string subcommand_program(const std::string& name) {
  const auto directory = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string program = directory / ("rondo-" + name);
  if (access(program.c_str(), X_OK) == 0) return program;
  std::vector<std::string> names = {"run"};
  bool known = false;
  for (const Subcommand& command : known_subcommands()) {
    names.emplace_back(command.name);
    known = known || name == command.name;
  }
  if (known) {
    throw UsageError(str("the program of 'rondo ", name, "' is missing: ", program,
                         "; build it with 'cmake --build build/release --target rondo-", name,
                         "', or install rondo again"));
  }
  throw UsageError(str("'", name, "' is not a rondo command; there are ", rondo::join(names, ", ")));
}

void exec_subcommand(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string program = subcommand_program(name);
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  throw UsageError(str("cannot start ", program, ": ", rondo::errno_text(errno)));
}
