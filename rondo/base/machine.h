#pragma once

#include <filesystem>
#include <string>

#include "rondo/base/bytes.h"

namespace rondo {

// Processor model and number of processors: what was measured holds for machines that agree in it.
std::string machine_name();

// Where a measurement of this machine is kept: the path in the environment variable `variable` when it is
// set, else rondo/`file` in $XDG_CACHE_HOME or ~/.cache. Empty when none of these is set.
std::filesystem::path measurement_path(const char* variable, const char* file);

// Bytes of the largest cache that the processors have; 32 MiB where the system does not tell.
Bytes largest_cache();

}  // namespace rondo
