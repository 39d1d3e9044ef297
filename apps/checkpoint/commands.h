#pragma once

#include "apps/common/command_line.h"

// Each function adds one subcommand to `app` and returns the function to run if it is chosen.
namespace rondo {

Command add_inspect(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_diff(CLI::App& app);
Command add_convert(CLI::App& app);
Command add_reshard(CLI::App& app);
Command add_merge(CLI::App& app);

}  // namespace rondo
