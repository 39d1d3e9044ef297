#pragma once

#include "apps/common/command_line.h"

// Each function adds one benchmark to `app`. To add one: a file in dev/, a function here, and a line in
// dev/main.cpp.
namespace rondo::bench {

// Installed, in rondo-bench.
Command add_checkpoint(CLI::App& app);
Command add_collectives(CLI::App& app);
Command add_step(CLI::App& app);

// Development benchmarks, in rondo-bench-dev.
Command add_codecs(CLI::App& app);
Command add_loader(CLI::App& app);
Command add_memory_tracking(CLI::App& app);
Command add_pipeline(CLI::App& app);
Command add_servers(CLI::App& app);
Command add_startup(CLI::App& app);
Command add_strategies(CLI::App& app);
Command add_trainer(CLI::App& app);

// Worker processes of `step`, `pipeline`, `strategies` and bench/mesh_prediction.py; hidden from help.
Command add_step_worker(CLI::App& app);
Command add_pipeline_worker(CLI::App& app);
Command add_plan_worker(CLI::App& app);
Command add_strategies_worker(CLI::App& app);

}  // namespace rondo::bench
