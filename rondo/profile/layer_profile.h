#pragma once

#include <vector>

#include "rondo/cost/profile.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"

namespace rondo {

struct LayerProfileOptions {
  int passes = 5;  // number of passes per kind and batch; the median is used
  std::vector<int> divided_ranks = {
      2, 4};  // numbers of ranks for which divided layers are measured, if possible
};

// Measures every layer of models from `make_model` as a stage of its own (parallel/pipeline/stage.h), for the
// batch and for a quarter of it: forward, unsplit and split backward, activation and output bytes. Then
// measures one rank's part of layers divided along tensor, context and expert, and counts its messages
// without sending them. `loss` is part of the last layer. Times are those of this process; not thread-safe.
// `units` are those of the same model. Returns nothing for a model that is not a sequence of layers.
std::vector<cost::LayerProfile> profile_layers(const ModelFactory& make_model, const Batch& batch,
                                               const LossFunction& loss,
                                               const std::vector<cost::UnitProfile>& units,
                                               const LayerProfileOptions& options = {});

// Scales all times so that a pass of all layers over the profile's batch takes as long as a pass of all
// units.
void fit_to_units(cost::Profile& profile);

}  // namespace rondo
