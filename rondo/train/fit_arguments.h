#pragma once

#include <vector>

#include "rondo/train/call_arguments.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Returns the values that Trainer::fit compares between ranks: the size of the data, its first, middle and
// last sample, and the options that decide the number of steps, their samples and the callbacks. Samples are
// not compared where each rank may have others: those of files of its own, and with AutoShard::off. Leaves
// the default random generators as they were.
std::vector<CallArgument> fit_arguments(const Dataset& data, const FitOptions& options,
                                        const Strategy& strategy, c10::Device device);

}  // namespace rondo
