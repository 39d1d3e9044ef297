#pragma once

#include <functional>
#include <string>

#include "rondo/profile/layer_profile.h"
#include "rondo/profile/link_profile.h"
#include "rondo/profile/model_profile.h"

namespace rondo {

struct JobProfileOptions {
  ModelProfileOptions model = {};
  LinkProfileOptions link = {};
  // Steps of real training, between hosts, to measure the overhead of a step outside its units.
  int steps = 12;
  // Creates the model again for Profile::layers; not set: layers are not measured.
  ModelFactory make_model = {};
  LayerProfileOptions layers = {};
  // Called on every rank at the start of each stage, with its name: "units", "layers", "link", "steps".
  std::function<void(const std::string& stage)> on_stage = [](const std::string&) {};
};

// Measures a model on one batch, and the link, on all ranks of a job at once, as in training. Takes the
// slowest rank's times and the largest rank's bytes. Collective; returns the same result on all ranks.
// Changes the model's weights. `made_for` becomes Profile::made_for. Throws UsageError for a world of one
// rank.
cost::Profile profile_job(const Context& context, Model model, const Batch& batch,
                          const JobProfileOptions& options, std::string made_for);

// Returns a text of everything that a profile's values depend on. `batch` is one rank's; of its tensors only
// the length of token sequences counts, since the model's configuration has other sizes. `optimizer` and
// `loss` are names.
std::string describe_job(const Model& model, const Batch& batch, const std::string& optimizer,
                         const std::string& loss, const Context& context);

}  // namespace rondo
