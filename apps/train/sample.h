#pragma once

#include "apps/train/flags.h"

namespace rondo {

// Prints --sample's text and its continuation by the GPT in the newest checkpoint of --run-dir. Throws
// UsageError when the checkpoint holds another kind of model.
void print_sample(const TrainFlags& flags);

}  // namespace rondo
