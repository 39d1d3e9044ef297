#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::env {

// Environment variables by name. A value type, so that tests need not change the process's own environment.
using EnvironmentMap = std::map<std::string, std::string, std::less<>>;

// Returns a copy of this process's environment. Not safe while another thread changes it (setenv).
EnvironmentMap process_environment();

// Returns the value of `variable`. An empty value counts as not set, because scripts often export empty
// variables.
std::optional<std::string> lookup(const EnvironmentMap& environment, std::string_view variable);

// Returns whether `rondo run` or torchrun started this process: RONDO_LAUNCHER or TORCHELASTIC_RUN_ID is set
// together with RANK and WORLD_SIZE. One of the first two alone may be left over from another job (`export
// TORCHELASTIC_RUN_ID=...`).
bool started_by_launcher(const EnvironmentMap& environment);

}  // namespace rondo::env
