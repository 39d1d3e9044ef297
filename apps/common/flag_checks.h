#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace rondo {

// What a flag's value must be, said as people say it. CLI11's own checks write the largest double out in 309
// digits, and let "nan" pass.

CLI::Validator positive_number();                   // above 0
CLI::Validator not_negative_number();               // 0 or more
CLI::Validator between(double least, double most);  // both included

// A file or folder to read that is there: what the user mistyped is wrong usage, unlike what is damaged.
CLI::Validator existing_path();

// A value that `check` takes: its UsageError is the flag's error.
CLI::Validator accepted_by(std::function<void(const std::string&)> check);

// Adds `--device`, which takes the names of rondo/env/device_name.h; `device` holds the default.
CLI::Option* add_device_flag(CLI::App& app, std::string& device);

// --json: where write_json() puts the result.
inline void add_json_flag(CLI::App& app, std::string& target) {
  app.add_option("--json", target, "Write the result to FILE, or '-' for standard output");
}

// How often the systems of a benchmark take their turns.
inline void add_turns_flag(CLI::App& app, const char* name, int& turns, const char* help) {
  app.add_option(name, turns, help)->check(between(1, 1000));
}

}  // namespace rondo
