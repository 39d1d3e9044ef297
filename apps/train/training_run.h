#pragma once

#include "apps/train/flags.h"
#include "rondo/base/error.h"
#include "rondo/strategy/registry.h"

namespace rondo {

// Trains as this process's rank, by one of `strategies`, and writes the run directory. Returns ok, or
// preempted after TERM or INT. Errors that are raised on all ranks are AgreedErrors
// (rondo/train/agreement.h).
ExitCode run_training(const TrainFlags& flags, const StrategyRegistry& strategies);

}  // namespace rondo
