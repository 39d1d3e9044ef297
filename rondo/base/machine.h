#pragma once

#include <filesystem>
#include <string>

namespace rondo {

// Processor model and number of processors: what was measured holds for machines that agree in it.
std::string machine_name();

// The name by which this host calls itself; "unknown host" when the kernel does not say.
std::string host_name();

// Where a measurement of this machine is kept: the path in the environment variable `variable` when it is
// set, else rondo/`file` in $XDG_CACHE_HOME or ~/.cache. Empty when none of these is set.
std::filesystem::path measurement_path(const char* variable, const char* file);

}  // namespace rondo
