#pragma once

#include <string>
#include <vector>

#include "apps/train/flags.h"

namespace rondo {

// Environment variable in which a rank finds the command that was typed, as a shell reads it.
inline constexpr const char* kCommandVariable = "RONDO_COMMAND";

// Becomes the worker program (this process is a rank already, or the only one), or starts --nproc-per-node of
// them and waits. `arguments` are the command line's, without the program. Returns the exit code. Throws
// UsageError, or Error when the worker program is missing.
int start_training(const TrainFlags& flags, const std::vector<std::string>& arguments);

}  // namespace rondo
