#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rondo/cost/profile.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/profile/job_profile.h"
#include "rondo/profile/plan_for.h"

// The steps of plan_for(), for programs that have a profile, or measure more of one.
namespace rondo {

// What measuring a job for a plan looks at.
JobProfileOptions planning_profile_options(const torch::nn::Module& model, const PlanForOptions& options);

// The best plan for ranks of `limit` bytes of memory each, as `rondo plan --plan-out` writes it. `limit_name`
// is what errors call the limit. Throws UsageError naming the smallest limit that is feasible.
nlohmann::ordered_json plan_of_profile(const cost::Profile& profile, int ranks, Bytes limit,
                                       const PlanForOptions& options, const std::string& limit_name);

// The same on the best mesh.
nlohmann::ordered_json mesh_plan_of_profile(const cost::Profile& profile, int ranks, Bytes limit,
                                            const PlanForOptions& options, const plan::MeshSearch& search,
                                            const std::string& limit_name);

}  // namespace rondo
