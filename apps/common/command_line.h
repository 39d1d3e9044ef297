#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Parses the arguments and runs `body`, which returns the exit code. Flags may use '-' or '_'. Prints errors
// to standard error as print_error() does. Returns rondo's exit codes: 2 for wrong usage, 1 for other errors,
// including output that could not be written. A JobError has its own exit code, and is printed only if it is
// this process's to report. exit() then does not destroy static objects that existed before the call.
int run_command_line(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body);

// Returns the name and versions of this program: "rondo 0.2.0 for libtorch 2.13.0".
std::string program_identity();
// The environment variable in which `rondo` passes its identity to the programs that it starts.
inline constexpr const char* kStarterVariable = "RONDO_STARTED_BY";
// Returns why this program cannot run if parts of two installations are mixed: a program and the library that
// it has loaded, or a program and the `rondo` that started it. Returns an empty string if they fit. Removes
// kStarterVariable from the environment.
std::string describe_mixture();

// Prints "PROGRAM: text" to standard error. `text` may contain text from files: it is made printable() and
// truncated at 8 KiB.
void print_error(const std::string& program, std::string_view text);

// Returns text from a file (a tensor's name, a note) for a program's output: made printable(), truncated at 4
// KiB.
std::string shown(std::string_view text);

// Flushes standard output and checks for errors at a program's end. Returns `code`, or 1 in place of 0, after
// a message, if standard output could not be written (a full disk). A pipe closed by its reader is no
// failure.
int end_with_streams(const std::string& program, int code);

// Returns the text of an error of CLI11; "--lr needs a value" for a flag at the end of the line.
std::string parse_error_text(const CLI::ParseError& error);

// Returns "unknown flag --modle; did you mean --model?", from the flags that `app` has.
std::string describe_unknown_flag(const CLI::App& app, const std::string& given);

// One subcommand of a program.
struct Command {
  CLI::App* app;
  std::function<int()> run;  // returns the exit code
};

// Calls run_command_line() with the body of the chosen subcommand.
int run_commands(CLI::App& app, int argc, const char* const* argv, const std::vector<Command>& commands);

// Implements `--json TARGET`: writes the value as indented JSON to the file TARGET, or to standard output for
// "-". Does nothing if TARGET is empty. write_output() handles files, links, devices and pipes.
void write_json(const std::string& target, const nlohmann::ordered_json& value);

// Parses a flag's JSON object; `flag` is its name in errors. Throws UsageError.
nlohmann::ordered_json parse_json_flag(const std::string& text, const std::string& flag);

}  // namespace rondo
