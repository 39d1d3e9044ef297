#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rondo {

// Adds `--device`, which takes the names of rondo/env/device_name.h; `device` holds the default.
CLI::Option* add_device_flag(CLI::App& app, std::string& device);

}  // namespace rondo
