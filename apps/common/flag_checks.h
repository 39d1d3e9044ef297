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

}  // namespace rondo
