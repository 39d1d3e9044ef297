#include "subcommands.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "apps/common/command_line.h"
#include "apps/common/libtorch_location.h"
#include "apps/common/wrong_flag.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

using rondo::str;
using rondo::UsageError;

std::optional<int> parse_arguments(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // in the order that CLI11 expects
  try {
    app.parse(arguments);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // help, version
  } catch (const CLI::ParseError& error) {
    throw UsageError(rondo::parse_error_text(error));
  }
  return std::nullopt;
}

const std::vector<Subcommand>& known_subcommands() {
  static const std::vector<Subcommand> commands = {
      {"new", "create a project that trains your own model"},
      {"train", "train a built-in model on your data"},
      {"evaluate", "loss and metrics of a trained model", true},
      {"predict", "predictions of a trained model", true},
      {"export", "export a trained model to TorchScript, safetensors or Hugging Face", true},
      {"tokenize", "convert texts into token files for train", true},
      {"bench", "benchmark collectives, training steps and start-up, also of peers", true},
      {"profile", "measure a model and the link between ranks, for planning", true},
      {"plan", "find the fastest strategies and schedule within a memory limit"},
      {"simulate", "predict a training step on up to 16,384 ranks"},
      {"checkpoint", "inspect, verify and convert checkpoints", true},
      {"report", "write a self-contained HTML page about a run"},
      {"top", "monitor a run in the terminal"},
      {"doctor", "check this machine: what works, what is missing, how to install it"},
  };
  return commands;
}

std::string subcommand_program(const std::string& name) {
  const auto directory = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::string program = directory / ("rondo-" + name);
  if (access(program.c_str(), X_OK) == 0) return program;
  std::vector<std::string> names = {"run", "completion"};
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
  const std::string meant = rondo::suggest_option(name, names);
  throw UsageError(
      str("'", name, "' is not a rondo command; ",
          meant.empty() ? "there are " + rondo::join(names, ", ") : str("did you mean ", meant, "?")));
}

namespace {

bool links_libtorch(const std::string& name) {
  const std::vector<Subcommand>& all = known_subcommands();
  return std::any_of(all.begin(), all.end(), [&](const Subcommand& command) {
    return command.links_libtorch && name == command.name;
  });
}

}  // namespace

void exec_subcommand(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string program = subcommand_program(name);
  // Checked here, because the dynamic linker would otherwise fail before the program's first line.
  if (links_libtorch(name)) rondo::use_libtorch();
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  setenv(rondo::kStarterVariable, rondo::program_identity().c_str(), 1);
  execv(program.c_str(), words.data());
  throw UsageError(str("cannot start ", program, ": ", rondo::errno_text(errno)));
}
