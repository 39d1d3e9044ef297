#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/train/flags.h"
#include "apps/train/run_directory.h"
#include "rondo/backend/context.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/train/callbacks/prediction_report.h"
#include "rondo/train/optimizer.h"

namespace rondo {

// The plan of `rondo train --strategy planned`, the same text on all ranks.
struct JobPlan {
  std::string text;       // as StrategyOptions::plan_text takes it; empty for another strategy
  Prediction prediction;  // what it expects
  bool predicts = false;  // a short form expects nothing
};

// What a plan is made for.
struct JobToPlan {
  std::function<Model()> make_model;  // one to be profiled
  Batch batch;                        // of one rank and pass
  OptimizerOptions optimizer;
};

// Reads --plan on every rank, or measures the job (--profile, or RUN/profile.json of the same job, saves
// that) and plans for --memory-limit on rank 0. Collective. Throws AgreedError: of a plan for another model,
// batch, profile or number of ranks, of ranks that read different plans, of a limit that no plan fits.
JobPlan plan_job(const TrainFlags& flags, const Context& context, const RunDirectory& run,
                 const std::function<JobToPlan()>& job);

}  // namespace rondo
