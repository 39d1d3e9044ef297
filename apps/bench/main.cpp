// The `rondo-bench` program: benchmarks that run peers in the same run.
#include "apps/bench/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Benchmarks; --peers also measures the systems that rondo is compared with.", "rondo bench");
  app.require_subcommand(1);
  const std::vector<rondo::Command> commands{rondo::bench::add_checkpoint(app),
                                             rondo::bench::add_collectives(app), rondo::bench::add_step(app),
                                             rondo::bench::add_step_worker(app)};
  // Set afterwards: a subcommand inherits the footer that exists when it is added.
  app.footer(
      "Examples:\n"
      "  rondo bench checkpoint --peers\n"
      "  rondo bench collectives --peers --json collectives.json\n"
      "  rondo bench step --peers --json step.json");
  return rondo::run_commands(app, argc, argv, commands);
}
