#pragma once

#include "apps/common/command_line.h"

// Each function adds one kind of benchmark to `app` and returns what runs when it was chosen. To add one: a
// folder, a function here, and a line in main.cpp.
namespace rondo::bench {

Command add_accounting(CLI::App& app);
Command add_codecs(CLI::App& app);
Command add_collectives(CLI::App& app);
Command add_startup(CLI::App& app);
Command add_step(CLI::App& app);
// The processes that `step` starts; not in the help text.
Command add_step_worker(CLI::App& app);

}  // namespace rondo::bench
