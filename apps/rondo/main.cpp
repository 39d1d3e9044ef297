// The `rondo` program: runs `rondo run` itself, and starts the sibling program of any other subcommand.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/common/libtorch_location.h"
#include "rondo/backend/engine_factories.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/launch/stop_signals.h"
#include "rondo_commit.h"
#include "run_command.h"

// Subcommands are separate programs named rondo-<subcommand> beside this program, as in git.

// A known subcommand.
struct Subcommand {
  const char* name;
  const char* help;             // one line
  bool links_libtorch = false;  // it needs libtorch to start
};
const std::vector<Subcommand>& known_subcommands();

// Replaces this process by the subcommand's program. Throws rondo::UsageError if the name is unknown or its
// program does not exist. For a program that links libtorch it throws as use_libtorch() does. Does not
// return.
[[noreturn]] void exec_subcommand(const std::string& name, const std::vector<std::string>& arguments);

// Returns the path of the subcommand's program; throws rondo::UsageError as exec_subcommand() does.
std::string subcommand_program(const std::string& name);

using rondo::str;
using rondo::UsageError;

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

bool links_libtorch(const std::string& name) {
  const std::vector<Subcommand>& all = known_subcommands();
  return std::any_of(all.begin(), all.end(), [&](const Subcommand& command) {
    return command.links_libtorch && name == command.name;
  });
}

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

namespace {

using Arguments = std::vector<std::string>;

void print_help() {
  std::printf(
      "rondo %s: distributed training for libtorch, in C++\n\n"
      "Usage: rondo COMMAND [FLAGS]\n\n"
      "  run         start a program as several processes\n",
      rondo::kVersion);
  for (const Subcommand& command : known_subcommands())
    std::printf("  %-10s  %s\n", command.name, command.help);
  std::printf(
      "\n'rondo COMMAND --help' explains a command.\n  --version   versions of rondo and of the libtorch "
      "that it loads, and its engines\n  --prefix    the folder of the installation, for CMAKE_PREFIX_PATH\n "
      " --libtorch  the folder of the libtorch that programs load\n\nExamples:\n  rondo doctor\n  rondo run "
      "-n 2 ./my_program\n  rondo train --model gpt --data texts/ --nproc-per-node 2\n");
}

// The libtorch that programs load, as --version shows it.
std::string describe_libtorch() {
  try {
    const std::filesystem::path folder = rondo::locate_libtorch();
    const bool cuda = std::filesystem::exists(folder / "lib" / "libtorch_cuda.so");
    return str(rondo::libtorch_version(folder), cuda ? " (CUDA build), " : " (CPU build), ", folder.string());
  } catch (const rondo::Error& error) {
    return str("none: ", error.what());
  }
}

// Returns the names of the engines that this installation has.
std::vector<std::string> available_engines() {
  std::vector<std::string> engines;
  for (const rondo::Declaration& engine : rondo::declared_engines()) {
    if (engine.name == rondo::GlooEngineFactory::kName && RONDO_HAVE_GLOO == 0) continue;
    if (engine.installed_apart && rondo::find_module(str("rondo_", engine.name, ".so")).empty()) continue;
    engines.push_back(engine.name);
  }
  return engines;
}

int print_versions() {
  std::printf("rondo %s\ncommit %s\nlibtorch %s\nengines %s\n", rondo::kVersion, RONDO_COMMIT,
              describe_libtorch().c_str(), rondo::join(available_engines(), ", ").c_str());
  return 0;
}

int dispatch(Arguments arguments) {
  if (arguments.empty()) {
    print_help();
    return static_cast<int>(rondo::ExitCode::usage);
  }
  const std::string command = arguments.front();
  arguments.erase(arguments.begin());
  if (command == "--help" || command == "--help-all" || command == "-h" || command == "help") {
    if (!arguments.empty()) return dispatch({arguments.front(), "--help"});
    print_help();
    return 0;
  }
  if (command == "--version") return print_versions();
  if (command == "--prefix") {
    std::printf("%s\n", rondo::installation_prefix().c_str());
    return 0;
  }
  if (command == "--libtorch") {
    std::printf("%s\n", rondo::locate_libtorch().c_str());
    return 0;
  }
  if (command.starts_with("-")) throw rondo::UsageError("unknown flag " + command);
  // Both handle these signals gracefully, and install their handlers later.
  if (command == "run" || command == "train")
    rondo::launch::hold_signals(rondo::launch::signals_held_at_start());
  if (command == "run") return run_command(arguments);
  exec_subcommand(command, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() || arguments.front() != "run" ? "rondo" : "rondo run";
  try {
    return rondo::end_with_streams(command, dispatch(arguments));
  } catch (const rondo::UsageError& error) {
    rondo::print_error(command, error.what());
    std::fprintf(stderr, "Try '%s --help'.\n", command.c_str());
    return static_cast<int>(rondo::ExitCode::usage);
  } catch (const std::exception& error) {
    rondo::print_error(command, error.what());
    return static_cast<int>(rondo::ExitCode::failed);
  }
}
