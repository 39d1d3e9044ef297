#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rondo {

// The values of `--device` for help. The simulated accelerator of builds with tests ("sim", "sim:N") is not
// in it.
inline constexpr const char* kDeviceNames = "{auto,cpu,cuda}";

// Throws UsageError, in the name of `what`, unless `text` names a device. Whether it is there only libtorch
// knows.
void check_device_name(const std::string& text, const std::string& what);

// Adds `--device` to a program; `device` holds the default.
CLI::Option* add_device_flag(CLI::App& app, std::string& device);

}  // namespace rondo
