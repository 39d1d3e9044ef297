#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/cost/step_plan.h"
#include "rondo/plan/explain.h"
#include "rondo/plan/planner.h"

namespace rondo::plan {

// Returns the step that `answer` plans, for training. `timeline` is its simulation under the memory limit.
cost::StepPlan step_plan(const cost::StepModel& model, const PlanResult& answer, std::uint64_t memory_limit,
                         const simulate::Timeline& timeline);

// Returns the plan as JSON: the format that `rondo plan --json` and `--plan-out` write and `rondo train
// --plan` reads. docs/planner/plan-file.md describes the keys.
nlohmann::ordered_json plan_to_json(const cost::StepModel& model, const PlanResult& answer,
                                    const Explanation& explanation, const PlannerOptions& options);

using cost::parse_step_plan;
using cost::PlannedUnit;
using cost::StepPlan;

// Returns the plan in `json` for the simulator. Throws as parse_step_plan() does. Throws UsageError for a
// short form, or a plan for another profile, number of ranks or segment size than `model`.
simulate::Candidate plan_from_json(const cost::StepModel& model, const nlohmann::ordered_json& json,
                                   const std::string& what);

// Returns the plan in the terms of PyTorch's FSDP2: per unit reshard_after_forward, checkpointing, and the
// units whose parameters to prefetch during its compute. Units that FSDP2 cannot shard alike (ddp, zero1,
// zero2) become reshard_after_forward = false and are listed in "approximated".
nlohmann::ordered_json to_fsdp2(const cost::StepModel& model, const simulate::Candidate& plan);

}  // namespace rondo::plan
