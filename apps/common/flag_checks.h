#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace rondo {

// Validators of flag values with readable rules. CLI11's own checks print the largest double with 309 digits,
// and accept "nan".

CLI::Validator positive_number();                   // above 0
CLI::Validator not_negative_number();               // 0 or more
CLI::Validator between(double least, double most);  // both included

// Accepts an existing file or folder. A missing path is wrong usage, unlike a damaged file.
CLI::Validator existing_path();

// Accepts a value for which `check` does not throw UsageError; its message becomes the flag's error.
CLI::Validator accepted_by(std::function<void(const std::string&)> check);

// Adds `--device` with the names of rondo/env/device_name.h; `device` holds the default.
CLI::Option* add_device_flag(CLI::App& app, std::string& device);

// Adds --json, the destination of write_json().
inline void add_json_flag(CLI::App& app, std::string& target) {
  app.add_option("--json", target, "Write the result to FILE, or '-' for standard output");
}

// Adds a flag for the number of turns of a benchmark's systems.
inline void add_turns_flag(CLI::App& app, const char* name, int& turns, const char* help) {
  app.add_option(name, turns, help)->check(between(1, 1000));
}

}  // namespace rondo
