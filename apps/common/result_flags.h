#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/common/flag_checks.h"

namespace rondo {

// --json: where write_json() puts the result.
inline void add_json_flag(CLI::App& app, std::string& target) {
  app.add_option("--json", target, "Write the result to FILE, or '-' for standard output");
}

// How often the systems of a benchmark take their turns.
inline void add_turns_flag(CLI::App& app, const char* name, int& turns, const char* help) {
  app.add_option(name, turns, help)->check(between(1, 1000));
}

}  // namespace rondo
