#include "apps/common/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/job_error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/output.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// "--dry_run=a_b" becomes "--dry-run=a_b"; what is not a long flag stays.
std::string with_dashes(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  const auto end = std::find(argument.begin(), argument.end(), '=');
  std::replace(argument.begin(), end, '_', '-');
  return argument;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

// The (sub)command whose flags the user was writing.
const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.back());
}

// What CLI11 could not place among `arguments`, as the user would see it.
std::string describe_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    if (extra.starts_with("-")) return describe_unknown_flag(innermost(app), extra);
  }
  return str("unexpected argument '", extras.empty() ? "" : extras.front(), "'");
}

// DEL and U+0080 to U+009F may stand in JSON as they are, but some terminals obey them.
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

constexpr std::size_t kLongestMessage = 8192;
constexpr std::size_t kLongestText = 4096;

int report(const CLI::App& app, std::string_view text, ExitCode code) {
  print_error(app.get_name(), text);
  return static_cast<int>(code);
}

int run_body(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) arguments.push_back(with_dashes(argv[i]));  // CLI11 wants them reversed
  try {
    app.parse(arguments);
    return body();
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ExtrasError&) {
    report(app, describe_extras(app, app.remaining(true)), ExitCode::usage);
    std::fprintf(stderr, "Try '%s --help'.\n", app.get_name().c_str());
    return static_cast<int>(ExitCode::usage);
  } catch (const CLI::ParseError& e) {
    report(app, e.what(), ExitCode::usage);
    std::fprintf(stderr, "Try '%s --help'.\n", app.get_name().c_str());
    return static_cast<int>(ExitCode::usage);
  } catch (const JobError& e) {
    if (e.mine_to_report()) print_error(app.get_name(), e.what());
    return static_cast<int>(e.exit_code());
  } catch (const UsageError& e) {
    return report(app, e.what(), ExitCode::usage);
  } catch (const nlohmann::json::exception& e) {
    // Who reads a file says where in it a value is wrong; what got past that is said without the library's
    // name.
    return report(app, "a value in a text of JSON cannot be: " + json_problem(e), ExitCode::failed);
  } catch (const std::exception& e) {
    return report(app, plain_message(e), ExitCode::failed);
  }
}

}  // namespace

void print_error(const std::string& program, std::string_view text) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), printable(text, kLongestMessage).c_str());
}

std::string shown(std::string_view text) { return printable(text, kLongestText); }

int end_with_streams(const std::string& program, int code) {
  errno = 0;
  std::cout.flush();
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  const int reason = errno;
  // A reader that has left, as in `| head -1`, wanted no more: that is no failure.
  if (!failed || reason == EPIPE) return code;
  std::fprintf(stderr, "%s: cannot write standard output: %s\n", program.c_str(),
               reason == 0 ? "an earlier write failed" : errno_text(reason).c_str());
  return code == 0 ? static_cast<int>(ExitCode::failed) : code;
}

std::string describe_unknown_flag(const CLI::App& app, const std::string& given) {
  const std::string flag = given.substr(0, given.find('='));
  std::string nearest;
  std::size_t least = 4;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::size_t distance = edit_distance("--" + name, flag);
      if (distance >= least) continue;
      least = distance;
      nearest = "--" + name;
    }
  }
  return str("unknown flag ", flag, nearest.empty() ? "" : str("; did you mean ", nearest, "?"));
}

int run_command_line(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body) {
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
    std::cout << text << std::flush;  // whether it arrived, end_with_streams() says
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
