#pragma once

#include <map>
#include <string>

#include "rondo/format/metrics_export.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Returns histograms of the elements of each weight, "weights/<name>", and of its gradient in the last step,
// "gradients/<name>", on rank 0; empty elsewhere. They cover the whole model, each element once. Buckets are
// an eighth of a power of two wide; non-finite elements are omitted. Collective; call it after a step.
std::map<std::string, Histogram> histograms_of(Trainer& trainer);

}  // namespace rondo
