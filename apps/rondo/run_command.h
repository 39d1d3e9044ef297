#pragma once

#include <string>
#include <vector>

// `rondo run`: starts a program as n processes. `arguments` are those after "run". Returns the exit code;
// throws rondo::UsageError.
int run_command(std::vector<std::string> arguments);
