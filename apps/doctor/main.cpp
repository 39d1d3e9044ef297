// `rondo doctor`: checks this machine for everything that rondo needs, and suggests remedies.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "apps/common/command_line.h"
#include "checks.h"
#include "report.h"
#include "rondo/base/error.h"
#include "rondo/base/terminal.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  rondo doctor                                # a table, with commands that install what is missing
  rondo doctor --json -                       # the same as JSON
  rondo doctor --libtorch /opt/libtorch       # check this libtorch
  srun -n 1 rondo doctor                      # what a scheduler's task sees

Exit code: 0, or 1 when something that training needs is broken.)";

void append(doctor::Findings& to, doctor::Findings from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

doctor::Findings examine(const std::string& libtorch_directory) {
  doctor::Findings findings = doctor::check_libtorch(libtorch_directory);
  doctor::Findings backends = doctor::check_backends(findings);
  // Runs first, because it also finds the libtorch that the measuring programs load.
  doctor::Findings programs = doctor::check_programs();
  append(findings, doctor::check_matmul(findings));
  append(findings, std::move(programs));
  append(findings, std::move(backends));
  append(findings, doctor::check_machine());
  append(findings, doctor::check_shared_memory());
  append(findings, doctor::check_network());
  append(findings, doctor::check_schedulers());
  return findings;
}

int report(const std::string& libtorch, const std::string& json) {
  const doctor::Findings findings = examine(libtorch);
  if (json != "-") {
    const bool coloured = rondo::wants_colours(STDOUT_FILENO);
    std::fputs(doctor::to_table(findings, coloured).c_str(), stdout);
  }
  rondo::write_json(json, doctor::to_json(findings));
  return static_cast<int>(doctor::healthy(findings) ? rondo::ExitCode::ok : rondo::ExitCode::failed);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Checks this machine: what works, what is missing, and how to install it.", "rondo doctor");
  app.footer(kExamples);
  std::string json;
  const char* const given = std::getenv("LIBTORCH");
  std::string libtorch = given == nullptr ? "" : given;
  app.add_option("--json", json, "Write the findings as JSON; - is standard output")->type_name("FILE");
  app.add_option("--libtorch", libtorch,
                 "Check this libtorch; default: $LIBTORCH, else the one that rondo was built with")
      ->type_name("DIR");
  const int code = rondo::run_command_line(app, argc, argv, [&] { return report(libtorch, json); });
  // Skips destructors of libraries: libtorch's may crash if it was loaded only partly.
  std::fflush(nullptr);
  std::_Exit(code);
}
