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
  Prediction prediction;        // what it expects
  bool predicts = false;        // a short form expects nothing
  RunFiles files = {};          // for the run directory: plan.json, profile.json
  std::int64_t batch_size = 0;  // of a replica and pass on its mesh, where the plan has chosen it
};

// What a plan is made for.
struct JobToPlan {
  std::function<Model()> make_model;  // one to be profiled
  Batch batch;                        // of one rank and pass
  OptimizerOptions optimizer;
  LossFunction loss;
  std::string loss_name;  // by which a profile of another loss is known
};

// Samples that a rank's profile is measured with: of what its replica computes in a pass its share.
std::int64_t profiled_batch_size(const TrainFlags& flags, int world_size);

// Reads --plan on every rank, or measures the job (--profile, or RUN/profile.json of the same job, saves
// that) and plans for --memory-limit on rank 0. Rank 0 says on standard error what it is doing, and what was
// planned. Into a directory without a run yet the profile is written at once, so that whoever gives another
// limit need not wait for it again; a run's own files are left alone. Collective. Throws AgreedError: of a
// plan for another model, batch, profile or number of ranks, of ranks that read different plans, of a limit
// that no plan fits.
JobPlan plan_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                 const std::function<JobToPlan()>& job);

}  // namespace rondo
