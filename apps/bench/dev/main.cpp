// The `rondo-bench-dev` program: benchmarks for rondo's own development, not installed.
#include "apps/bench/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Benchmarks for rondo's development; those for users are in 'rondo bench'.",
               "rondo bench-dev");
  app.require_subcommand(1);
  namespace bench = rondo::bench;
  const std::vector<rondo::Command> commands{
      bench::add_codecs(app),      bench::add_loader(app),           bench::add_memory_tracking(app),
      bench::add_pipeline(app),    bench::add_servers(app),          bench::add_startup(app),
      bench::add_strategies(app),  bench::add_trainer(app),          bench::add_pipeline_worker(app),
      bench::add_plan_worker(app), bench::add_strategies_worker(app)};
  app.footer(
      "Examples:\n"
      "  rondo bench-dev codecs\n"
      "  rondo bench-dev pipeline --peers");
  return rondo::run_commands(app, argc, argv, commands);
}
