#include "apps/common/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/common/help_format.h"
#include "apps/common/wrong_flag.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/job_error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/terminal.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace rondo {
namespace {

// Converts "--dry_run=a_b" to "--dry-run=a_b"; leaves everything except long flags unchanged.
std::string with_dashes(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const auto end = std::find(argument.begin(), argument.end(), '=');
  std::replace(argument.begin(), end, '_', '-');
  return argument;
}

// Returns the (sub)command that the user's flags belong to.
const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.back());
}

// Describes arguments that CLI11 did not recognize, in the user's spelling.
std::string describe_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    if (extra.starts_with("-")) return describe_unknown_flag(innermost(app), extra);
  }
  return str("unexpected argument '", extras.empty() ? "" : extras.front(), "'");
}

// JSON may contain DEL and U+0080 to U+009F unescaped, but some terminals interpret them.
std::string with_controls_escaped(const std::string& json) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const auto byte = static_cast<unsigned char>(json[i]);
    const auto next = static_cast<unsigned char>(i + 1 < json.size() ? json[i + 1] : 0);
    const bool is_pair = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    if (!is_pair && byte != 0x7F) {
      text += json[i];
      continue;
    }
    const unsigned code = is_pair ? next : byte;
    text += "\\u00";
    text += {digits[code >> 4], digits[code & 15]};
    i += is_pair ? 1 : 0;
  }
  return text;
}

// Returns the first long flag among `arguments` that `app` lacks, or an empty text. CLI11 may take the flag's
// value for an argument and report that instead.
std::string unknown_flag(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--")) continue;
    std::string flag = argument.substr(0, argument.find('='));
    if (app.get_option_no_throw(flag) == nullptr) return flag;
  }
  return {};
}

// Returns the message of an error of CLI11: names a word that is no command and a flag that does not exist.
std::string describe_parse_error(const CLI::App& app, const CLI::ParseError& error,
                                 const std::vector<std::string>& arguments) {
  const CLI::App& inner = innermost(app);
  if (const std::string flag = unknown_flag(inner, arguments); !flag.empty())
    return describe_unknown_flag(inner, flag);
  std::string text = parse_error_text(error);
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) return text;
  if (const std::vector<std::string> rest = inner.remaining(); !rest.empty()) {
    if (rest.front().starts_with("-") && rest.front() != "-") return str("unknown flag ", rest.front());
    std::vector<std::string> names;
    for (const CLI::App* command : inner.get_subcommands({}))
      if (!command->get_group().empty()) names.push_back(command->get_name());
    if (!names.empty())
      return str("'", rest.front(), "' is not a command of ", app.get_name(), "; there are ",
                 join(names, ", "));
  }
  return text;
}

constexpr std::size_t kLongestMessage = 8192;
constexpr std::size_t kLongestText = 4096;

int report(const CLI::App& app, std::string_view text, ExitCode code) {
  print_error(app.get_name(), text);
  return static_cast<int>(code);
}

int run_body(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body) {
  std::vector<std::string> arguments;
  // CLI11 expects reverse order.
  for (int i = argc - 1; i > 0; --i) arguments.push_back(with_dashes(argv[i]));
  // `rondo train` has its own --help.
  const bool has_own_help = app.get_help_ptr() == nullptr && app.get_option_no_throw("--help") != nullptr;
  if (!has_own_help) use_rondo_help(app);
  if (!has_own_help && arguments == std::vector<std::string>{kHelpJsonFlag}) {
    std::cout << help_to_json(help_page(app)).dump() << "\n";
    return 0;
  }
  try {
    app.parse(std::vector<std::string>(arguments));  // CLI11 consumes the vector
    return body();
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ExtrasError&) {
    report(app, describe_extras(app, app.remaining(true)), ExitCode::usage);
    std::fprintf(stderr, "Try '%s --help'.\n", app.get_name().c_str());
    return static_cast<int>(ExitCode::usage);
  } catch (const CLI::ParseError& e) {
    report(app, describe_parse_error(app, e, {arguments.rbegin(), arguments.rend()}), ExitCode::usage);
    std::fprintf(stderr, "Try '%s --help'.\n", app.get_name().c_str());
    return static_cast<int>(ExitCode::usage);
  } catch (const JobError& e) {
    if (e.is_reporter()) print_error(app.get_name(), e.what());
    return static_cast<int>(e.exit_code());
  } catch (const UsageError& e) {
    return report(app, e.what(), ExitCode::usage);
  } catch (const nlohmann::json::exception& e) {
    // Readers of files report the position of a wrong value themselves. Other JSON errors are reported
    // without the library's prefix.
    return report(app, "invalid value in JSON text: " + json_problem(e), ExitCode::failed);
  } catch (const std::exception& e) {
    return report(app, plain_message(e), ExitCode::failed);
  }
}

}  // namespace

void print_error(const std::string& program, std::string_view text) {
  const TextColours colours(wants_colours(STDERR_FILENO));
  print_message(str(colours.failure(program + ":"), " ", printable(text, kLongestMessage)));
}

std::string shown(std::string_view text) { return printable(text, kLongestText); }

int end_with_streams(const std::string& program, int code) {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  const int reason = errno;
  // If the reader closed the pipe, as in `| head -1`, that is no failure.
  if (!failed || reason == EPIPE) return code;
  std::fprintf(stderr, "%s: cannot write standard output: %s\n", program.c_str(),
               reason == 0 ? "an earlier write failed" : errno_text(reason).c_str());
  return code == 0 ? static_cast<int>(ExitCode::failed) : code;
}

std::string describe_unknown_flag(const CLI::App& app, const std::string& given) {
  const std::string flag = given.substr(0, given.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  const FlagHint hint = suggest_flag(flag.substr(std::min(flag.size(), flag.find_first_not_of('-'))), names);
  if (hint.name.empty()) return str("unknown flag ", flag);
  const CLI::Option* const meant = app.get_option_no_throw("--" + hint.name);
  const bool is_hidden = meant != nullptr && meant->get_group().empty();
  return str("unknown flag ", flag, "; did you mean ",
             is_hidden ? str("--set ", hint.name, "=VALUE") : hint.text, "?");
}

std::string parse_error_text(const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::size_t place = text.find(": 1 required ");
  return place != std::string::npos && text.ends_with(" missing") ? text.substr(0, place) + " needs a value"
                                                                  : text;
}

std::string program_identity() {
  return str("rondo ", RONDO_VERSION, " for libtorch ", RONDO_LIBTORCH_VERSION);
}

std::string describe_mixture() {
  if (std::string_view(kVersion) != RONDO_VERSION) {
    return str("this program is of ", program_identity(), ", but the library that it loaded is of rondo ",
               kVersion, "; check LD_LIBRARY_PATH for another installation of rondo");
  }
  const char* const starter = std::getenv(kStarterVariable);
  const std::string started_by = starter == nullptr ? program_identity() : starter;
  // Not for the programs that this one starts: another rondo may be among them.
  unsetenv(kStarterVariable);
  if (started_by == program_identity()) return {};
  return str("this program is of ", program_identity(), ", but the 'rondo' that started it is of ",
             started_by, "; programs of two installations are mixed in ",
             std::filesystem::read_symlink("/proc/self/exe").parent_path().string(),
             ": install one of them again");
}

namespace {

// Lets exit() end the process before the static objects that exist by now are destroyed: those of libtorch
// take a third of the time that a short program takes. Later ones are destroyed, such as the runtime of MPI.
// Sanitizers and coverage counters write their reports in such destructors.
void skip_static_destructors() {
#ifndef RONDO_REPORTS_AT_EXIT
  on_exit(
      [](int code, void*) {
        std::fflush(nullptr);
        _exit(code);
      },
      nullptr);
#endif
}

}  // namespace

int run_command_line(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body) {
  skip_static_destructors();
  if (const std::string mixture = describe_mixture(); !mixture.empty())
    return report(app, mixture, ExitCode::failed);
  return end_with_streams(app.get_name(), run_body(app, argc, argv, body));
}

int run_commands(CLI::App& app, int argc, const char* const* argv, const std::vector<Command>& commands) {
  return run_command_line(app, argc, argv, [&] {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return static_cast<int>(ExitCode::usage);
  });
}

void write_json(const std::string& target, const nlohmann::ordered_json& value) {
  if (target.empty()) return;
  const std::string text = with_controls_escaped(
      value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  if (target == "-") {
    std::cout << text << std::flush;  // end_with_streams() checks for errors
    return;
  }
  try {
    write_output(target, text);
  } catch (const Error& error) {
    throw Error(str("--json: ", error.what()));
  }
}

nlohmann::ordered_json parse_json_flag(const std::string& text, const std::string& flag) {
  try {
    nlohmann::ordered_json value = parse_json_strict(text, flag);
    if (!value.is_object()) throw DataError(str(flag, ": ", printable(text), " is not a JSON object"));
    return value;
  } catch (const DataError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace rondo
