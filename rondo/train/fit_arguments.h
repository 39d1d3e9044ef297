#pragma once

#include <vector>

#include "rondo/train/call_arguments.h"
#include "rondo/train/trainer.h"

namespace rondo {

// What Trainer::fit compares between ranks: the data by its size and by its first, middle and last sample,
// and what decides how many steps there are, on which samples, and what happens alongside. Samples are not
// compared where each rank may have others: those of files of its own, and with AutoShard::off. Leaves the
// default random generators as they were.
std::vector<CallArgument> fit_arguments(const Dataset& data, const FitOptions& options,
                                        const Strategy& strategy, c10::Device device);

}  // namespace rondo
