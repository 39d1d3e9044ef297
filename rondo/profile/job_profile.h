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
  int steps = 12;                // of real training, between hosts, for what a step takes besides its units
  ModelFactory make_model = {};  // the model once more, for Profile::layers; not given: they are not measured
  LayerProfileOptions layers = {};
  // Called on every rank as each stage begins, with its name: "units", "layers", "link", "steps".
  std::function<void(const std::string& stage)> on_stage = [](const std::string&) {};
};

// Measures a model on one batch and the link, on all ranks of a job at once, as they compute in training: the
// slowest rank's times, the largest rank's bytes. Collective; the same result on all ranks. The model's
// weights change. `made_for` is what Profile::made_for says. Throws UsageError for a world of one.
cost::Profile profile_job(const Context& context, Model model, const Batch& batch,
                          const JobProfileOptions& options, std::string made_for);

// What a profile's figures depend on, in words. `optimizer` and `loss` are names.
std::string describe_job(const Model& model, std::int64_t batch_size, const std::string& optimizer,
                         const std::string& loss, const Context& context);

}  // namespace rondo
