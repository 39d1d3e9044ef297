#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Parses the arguments and runs `body`, which returns the exit code; flags may be written with '-' or '_'.
// Errors go to standard error as print_error() has them, with the exit codes that all rondo programs have: 2
// for wrong usage, 1 for others, among them output that could not be written. A JobError has its own code,
// and is printed where it is this process's to report.
int run_command_line(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body);

// Name and versions of this program: "rondo 0.1.0 for libtorch 2.13.0".
std::string program_identity();
// `rondo` hands its identity to the programs that it starts in this variable.
inline constexpr const char* kStarterVariable = "RONDO_STARTED_BY";
// Returns why this program cannot run when parts of two installations are mixed: a program and the library
// that it has loaded, or a program and the `rondo` that started it; empty when they fit. Removes
// kStarterVariable from the environment.
std::string describe_mixture();

// "PROGRAM: text" on standard error. Texts of files may be in it: printable(), and cut at 8 KiB.
void print_error(const std::string& program, std::string_view text);

// A text of a file (a tensor's name, a note) as it may stand in a program's output: printable(), and cut at
// 4 KiB.
std::string shown(std::string_view text);

// The last word of every program: whether all that it printed has arrived. Returns `code`, or 1 in place of 0
// after a message when standard output could not be written (a full disk); a pipe whose reader has left is no
// failure.
int end_with_streams(const std::string& program, int code);

// "unknown flag --modle; did you mean --model?", from the flags that `app` has.
std::string describe_unknown_flag(const CLI::App& app, const std::string& given);

// One subcommand of a program.
struct Command {
  CLI::App* app;
  std::function<int()> run;  // returns the exit code
};

// run_command_line() with the body of the subcommand that was chosen.
int run_commands(CLI::App& app, int argc, const char* const* argv, const std::vector<Command>& commands);

// What `--json TARGET` promises: the value as indented JSON in the file TARGET, or on standard output for
// "-". Nothing for an empty TARGET. How files, links, devices and pipes are written is write_output()'s rule.
void write_json(const std::string& target, const nlohmann::ordered_json& value);

// The JSON object that a flag holds; `flag` names it in errors. Throws UsageError.
nlohmann::ordered_json parse_json_flag(const std::string& text, const std::string& flag);

}  // namespace rondo
