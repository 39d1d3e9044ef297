#pragma once

#include <string>
#include <vector>

#include "apps/train/flags.h"

namespace rondo {

// Becomes the worker program (this process is a rank already, or the only one), or starts --nproc-per-node of
// them and waits. `arguments` are the command line's, without the program. Returns the exit code. Throws
// UsageError, or Error when the worker program is missing.
int start_training(const TrainFlags& flags, const std::vector<std::string>& arguments);

}  // namespace rondo
