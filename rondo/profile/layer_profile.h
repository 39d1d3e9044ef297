#pragma once

#include <vector>

#include "rondo/cost/profile.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"

namespace rondo {

struct LayerProfileOptions {
  int passes = 5;                           // of each kind and batch; the median counts
  std::vector<int> divided_ranks = {2, 4};  // among which layers are measured divided, where they can be
};

// Measures every layer of the models that `make_model` makes as a stage of its own
// (parallel/pipeline/stage.h), for the batch and for a quarter of it: forward, backward as a whole and in two
// parts, what is kept and handed on. Then one rank's part of layers that are divided along tensor, context
// and expert, and what it would give its peers; nothing travels. `loss` is in the last layer. Times are
// those of this process. One thread. `units` are those of the same model. Nothing for a model that is no
// sequence of layers.
std::vector<cost::LayerProfile> profile_layers(const ModelFactory& make_model, const Batch& batch,
                                               const LossFunction& loss,
                                               const std::vector<cost::UnitProfile>& units,
                                               const LayerProfileOptions& options = {});

// Scales all times so that a pass of all layers over the profile's batch takes as long as that of all units.
void fit_to_units(cost::Profile& profile);

}  // namespace rondo
