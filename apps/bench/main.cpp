// The `rondo-bench` program: benchmarks that run the peer in the same run.
#include "apps/bench/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Benchmarks; with --peers the systems rondo is compared with run in the same run.",
               "rondo bench");
  app.require_subcommand(1);
  const std::vector<rondo::Command> commands{rondo::bench::add_checkpoint(app),
                                             rondo::bench::add_codecs(app),
                                             rondo::bench::add_collectives(app),
                                             rondo::bench::add_loader(app),
                                             rondo::bench::add_memory_tracking(app),
                                             rondo::bench::add_pipeline(app),
                                             rondo::bench::add_servers(app),
                                             rondo::bench::add_startup(app),
                                             rondo::bench::add_step(app),
                                             rondo::bench::add_strategies(app),
                                             rondo::bench::add_trainer(app),
                                             rondo::bench::add_pipeline_worker(app),
                                             rondo::bench::add_plan_worker(app),
                                             rondo::bench::add_step_worker(app),
                                             rondo::bench::add_strategies_worker(app)};
  // Afterwards: a subcommand takes over the examples that are there when it is added.
  app.footer(
      "Examples:\n"
      "  rondo bench checkpoint --peers\n"
      "  rondo bench memory-tracking\n"
      "  rondo bench codecs\n"
      "  rondo bench collectives --peers --json collectives.json\n"
      "  rondo bench loader --peers\n"
      "  rondo bench pipeline --peers\n"
      "  rondo bench servers\n"
      "  rondo bench startup --peers\n"
      "  rondo bench strategies\n"
      "  rondo bench step --peers --json step.json\n"
      "  rondo bench trainer");
  return rondo::run_commands(app, argc, argv, commands);
}
