#pragma once

#include <map>
#include <string>

#include "rondo/format/metrics_export.h"
#include "rondo/train/trainer.h"

namespace rondo {

// How the elements of each weight are spread, by "weights/<name>", and of its gradient in the last step, by
// "gradients/<name>": of the whole model, each element once wherever ranks hold it, on rank 0; empty
// elsewhere. Buckets are an eighth of a power of two wide; elements that are not finite are left out.
// Collective, after a step.
std::map<std::string, Histogram> histograms_of(Trainer& trainer);

}  // namespace rondo
