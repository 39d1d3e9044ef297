#pragma once

#include "apps/bench/strategies/emulated_accelerator.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/model.h"

namespace rondo::bench {

// A model of `units` layers that an emulated accelerator computes, each in these times: what pipelines of
// more ranks than the machine has processors are tried with.
Model make_emulated_stages(int units, const EmulatedTimes& times);
// Samples for it. They take gradients, so that the first unit's backward pass takes as long as the others'.
Batch emulated_batch(std::int64_t samples);

}  // namespace rondo::bench
