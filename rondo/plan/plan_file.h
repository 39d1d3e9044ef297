#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/cost/plan_file.h"
#include "rondo/plan/explain.h"
#include "rondo/plan/planner.h"

namespace rondo::plan {

// The plan as `rondo plan --json` and `--plan-out` write it and `rondo train --plan` reads it;
// docs/planner.md describes the keys.
nlohmann::ordered_json plan_to_json(const cost::StepModel& model, const Answer& answer,
                                    const Explanation& explanation, const PlannerOptions& options);

using cost::parse_plan_file;
using cost::PlanFile;
using cost::PlannedUnit;

// The plan inside of the JSON as the simulator wants it. Throws as
// parse_plan_file does, and UsageError when it is a short form, or was made for another profile, number of
// ranks or way of cutting blocks than `model`.
simulate::StepPlan plan_from_json(const cost::StepModel& model, const nlohmann::ordered_json& json,
                                  const std::string& what);

// The plan in the terms of PyTorch's FSDP2: per unit reshard_after_forward, checkpointing, and the units
// whose parameters to prefetch while it computes. Units that are not sharded as FSDP2 shards (ddp, zero1,
// zero2) are nearest to reshard_after_forward = false, and are listed in "approximated".
nlohmann::ordered_json to_fsdp2(const cost::StepModel& model, const simulate::StepPlan& plan);

}  // namespace rondo::plan
