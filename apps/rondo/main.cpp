// The `rondo` program: runs `rondo run` itself, and starts the sibling program of any other subcommand.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/common/help_format.h"
#include "apps/common/libtorch_location.h"
#include "completion_command.h"
#include "rondo/backend/engine_factories.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/launch/stop_signals.h"
#include "rondo_commit.h"
#include "run_command.h"
#include "subcommands.h"

using rondo::str;

namespace {

using Arguments = std::vector<std::string>;

rondo::HelpPage front_page() {
  rondo::HelpPage page{
      .name = "rondo",
      .summary = str("rondo ", rondo::kVersion, ": distributed training for libtorch, in C++"),
      .usage = "rondo COMMAND [FLAGS]",
      .groups = {{"Commands", {{.name = "run", .text = "start a program as several processes"}}}}};
  std::vector<rondo::HelpEntry>& commands = page.groups.front().entries;
  for (const Subcommand& command : known_subcommands())
    commands.push_back({.name = command.name, .text = command.help});
  commands.push_back({.name = "completion", .text = "a script that completes rondo's commands in a shell"});
  page.groups.push_back(
      {"Options",
       {{.name = "--help", .text = "print this help; 'rondo COMMAND --help' explains a command"},
        {.name = "--version", .text = "versions of rondo and of the libtorch that it loads, and its engines"},
        {.name = "--prefix", .text = "the folder of the installation, for CMAKE_PREFIX_PATH"},
        {.name = "--libtorch", .text = "the folder of the libtorch that programs load"}}});
  page.footer =
      "Examples:\n"
      "  rondo doctor\n"
      "  rondo run -n 2 ./my_program\n"
      "  rondo train --model gpt --data texts/ --nproc-per-node 2";
  return page;
}

void print_help() { std::cout << rondo::help_text(front_page()); }

// Returns a description of the libtorch that programs load, for --version.
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
  if (command == rondo::kHelpJsonFlag) {
    std::cout << help_of_all_commands(front_page()).dump() << "\n";
    return 0;
  }
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
  if (command == "completion") return completion_command(arguments, front_page());
  exec_subcommand(command, arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  const bool is_own = !arguments.empty() && (arguments.front() == "run" || arguments.front() == "completion");
  const std::string command = is_own ? "rondo " + arguments.front() : "rondo";
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
