#pragma once

#include <string>

#include "apps/train/flag_set.h"

namespace rondo {

// Returns every option with its value and origin (default, file and line, --set or flag) as a TOML file that
// --config reads.
std::string config_text(const FlagSet& set, const TrainFlags& flags);

}  // namespace rondo
