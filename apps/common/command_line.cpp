#include "apps/common/command_line.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
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

int report(const CLI::App& app, const char* text, ExitCode code) {
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), text);
  return static_cast<int>(code);
}

}  // namespace

int run_command_line(CLI::App& app, int argc, const char* const* argv, const std::function<int()>& body) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) arguments.push_back(with_dashes(argv[i]));  // CLI11 wants them reversed
  try {
    app.parse(arguments);
    return body();
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    report(app, e.what(), ExitCode::usage);
    std::fprintf(stderr, "Try '%s --help'.\n", app.get_name().c_str());
    return static_cast<int>(ExitCode::usage);
  } catch (const UsageError& e) {
    return report(app, e.what(), ExitCode::usage);
  } catch (const std::exception& e) {
    return report(app, e.what(), ExitCode::failed);
  }
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
  const std::string text = value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (target == "-") {
    std::cout << text << std::flush;
    return;
  }
  std::ofstream file(target, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw Error(str("--json: cannot write ", target));
}

}  // namespace rondo
