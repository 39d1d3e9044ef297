// The `rondo` program: `rondo run` itself, and everything else by starting its sibling programs.
#include <cstdio>
#include <exception>

#include "apps/common/command_line.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/launch/stop_signals.h"
#include "run_command.h"
#include "subcommands.h"

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
      "\n'rondo COMMAND --help' explains a command. Examples:\n"
      "  rondo doctor\n"
      "  rondo run -n 2 ./my_program\n"
      "  rondo train --model gpt --data texts/ --nproc-per-node 2\n");
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
  if (command == "--version") {
    std::printf("rondo %s\n", rondo::kVersion);
    return 0;
  }
  if (command.starts_with("-")) throw rondo::UsageError("unknown flag " + command);
  // Both save what there is at these signals, and install their handlers later.
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
