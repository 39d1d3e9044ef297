#pragma once

#include "apps/common/command_line.h"

// Each function adds one kind of benchmark to `app` and returns what runs when it was chosen. To add one: a
// folder, a function here, and a line in main.cpp.
namespace rondo::bench {

Command add_checkpoint(CLI::App& app);
Command add_memory_tracking(CLI::App& app);
Command add_codecs(CLI::App& app);
Command add_collectives(CLI::App& app);
Command add_loader(CLI::App& app);
Command add_pipeline(CLI::App& app);
Command add_servers(CLI::App& app);
Command add_startup(CLI::App& app);
Command add_step(CLI::App& app);
Command add_strategies(CLI::App& app);
Command add_trainer(CLI::App& app);
// The processes that `pipeline`, `step` and `strategies` start, and bench/mesh_prediction.py; not in the help
// text.
Command add_pipeline_worker(CLI::App& app);
Command add_plan_worker(CLI::App& app);
Command add_step_worker(CLI::App& app);
Command add_strategies_worker(CLI::App& app);

}  // namespace rondo::bench
