#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/train/flags.h"
#include "apps/train/run_directory.h"
#include "rondo/backend/context.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/profile/plan_of_profile.h"
#include "rondo/train/callbacks/prediction_report.h"

namespace rondo {

// The plan of `rondo train --strategy planned`, the same text on all ranks.
struct JobPlan : PlanOnMesh {
  Prediction prediction;        // expected step and memory
  bool predicts = false;        // false for a short form, which has no prediction
  RunFiles files = {};          // for the run directory: plan.json, profile.json
  std::int64_t batch_size = 0;  // samples per replica and pass if the plan has chosen a mesh
};

// Inputs of a plan.
struct JobToPlan {
  std::function<Model()> make_model;  // creates a model to profile
  Batch batch;                        // one rank's batch of a pass
  OptimizerOptions optimizer;
  LossFunction loss;
  std::string loss_name;  // identifies profiles of another loss
};

// Returns the number of samples to profile a rank with: its share of its replica's batch of a pass.
std::int64_t profiled_batch_size(const TrainFlags& flags, int world_size);

// Reads --plan on every rank, or profiles the job and plans for --memory-limit on rank 0. A profile of the
// same job (--profile or RUN/profile.json) replaces measuring. Rank 0 prints its progress and the plan to
// standard error. In a directory without a run the profile is written at once, so that a later try with
// another limit need not measure again; a run's own files are not changed. Collective. Throws AgreedError for
// a plan of another model, batch, profile or number of ranks, if ranks read different plans, and for a limit
// that no plan fits.
JobPlan plan_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                 const std::function<JobToPlan()>& job);

}  // namespace rondo
