#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/cost/step_plan.h"
#include "rondo/plan/explain.h"
#include "rondo/plan/planner.h"

namespace rondo::plan {

// The step that `answer` plans, as training takes it; `timeline` is its simulation under the memory limit.
cost::StepPlan step_plan(const cost::StepModel& model, const PlanResult& answer, std::uint64_t memory_limit,
                         const simulate::Timeline& timeline);

// The plan as `rondo plan --json` and `--plan-out` write it and `rondo train --plan` reads it;
// docs/planner/plan-file.md describes the keys.
nlohmann::ordered_json plan_to_json(const cost::StepModel& model, const PlanResult& answer,
                                    const Explanation& explanation, const PlannerOptions& options);

using cost::parse_step_plan;
using cost::PlannedUnit;
using cost::StepPlan;

// The plan inside of the JSON as the simulator wants it. Throws as
// parse_step_plan does, and UsageError when it is a short form, or was made for another profile, number of
// ranks or way of cutting blocks than `model`.
simulate::Candidate plan_from_json(const cost::StepModel& model, const nlohmann::ordered_json& json,
                                   const std::string& what);

// The plan in the terms of PyTorch's FSDP2: per unit reshard_after_forward, checkpointing, and the units
// whose parameters to prefetch while it computes. Units that are not sharded as FSDP2 shards (ddp, zero1,
// zero2) are nearest to reshard_after_forward = false, and are listed in "approximated".
nlohmann::ordered_json to_fsdp2(const cost::StepModel& model, const simulate::Candidate& plan);

}  // namespace rondo::plan
