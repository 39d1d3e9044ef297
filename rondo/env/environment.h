#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::env {

// Environment variables by name. A value type, so that everything that reads the environment can be tested
// without touching the process's own.
using EnvironmentMap = std::map<std::string, std::string, std::less<>>;

// A copy of this process's environment. Not to be called while another thread changes it (setenv).
EnvironmentMap process_environment();

// Value of `variable`; a variable that is set to nothing counts as not set, as scripts often export empty
// ones.
std::optional<std::string> lookup(const EnvironmentMap& environment, std::string_view variable);

// Whether `rondo run` or torchrun started this process: RONDO_LAUNCHER or TORCHELASTIC_RUN_ID is set, and
// RANK and WORLD_SIZE with it. The mark alone is left over from another job (`export
// TORCHELASTIC_RUN_ID=...`).
bool started_by_launcher(const EnvironmentMap& environment);

}  // namespace rondo::env
