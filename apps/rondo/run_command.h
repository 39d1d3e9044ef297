#pragma once

#include <string>
#include <vector>

#include "apps/common/help_format.h"

// `rondo run`: starts a program as n processes. `arguments` are those after "run". Returns the exit code;
// throws rondo::UsageError.
int run_command(std::vector<std::string> arguments);

// Returns the help of `rondo run`.
rondo::HelpPage page_of_run_command();
