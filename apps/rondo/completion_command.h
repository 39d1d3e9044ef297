#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/help_format.h"

// Returns help_to_json() of `front` with the pages of all commands, which their programs print. Prints a
// warning for a program that cannot be started, whose page then has a summary only.
nlohmann::ordered_json help_of_all_commands(const rondo::HelpPage& front);

// Runs `rondo completion` with these arguments and returns its exit code. `front` is the page of `rondo`.
// Throws rondo::UsageError for wrong usage.
int completion_command(std::vector<std::string> arguments, const rondo::HelpPage& front);
