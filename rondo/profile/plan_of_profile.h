#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/cost/profile.h"
#include "rondo/cost/step_plan.h"
#include "rondo/options/option.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/profile/job_profile.h"
#include "rondo/profile/plan_for.h"
#include "rondo/strategy/registry.h"

namespace torch::nn {
class Module;
}

// The steps of plan_for(), for programs that have a profile or measure more than plan_for() does.
namespace rondo {

// Returns the options of profiling a job for a plan.
JobProfileOptions planning_profile_options(const torch::nn::Module& model, const PlanForOptions& options);

// Returns the best plan for ranks with `limit` bytes of memory each, in the format of `rondo plan
// --plan-out`. `limit_name` is the limit's name in errors. Throws UsageError naming the smallest feasible
// limit.
nlohmann::ordered_json plan_of_profile(const cost::Profile& profile, int ranks, Bytes limit,
                                       const PlanForOptions& options, const std::string& limit_name);

// Returns the best plan on the best mesh, otherwise as plan_of_profile().
nlohmann::ordered_json mesh_plan_of_profile(const cost::Profile& profile, int ranks, Bytes limit,
                                            const PlanForOptions& options, const plan::MeshSearch& search,
                                            const std::string& limit_name);

// A plan for training: the options of each strategy on the planned mesh.
struct PlanOnMesh {
  std::string text;  // text of the plan file
  cost::StepPlan step = {};
  Mesh mesh = {};  // mesh of the ranks; empty: all along data

  // Returns the pipeline's options as texts; empty if the plan has no pipeline.
  OptionValues pipeline_options() const;
  // Returns the strategy to request on the mesh: "planned", "ddp" with spread experts, or the strategy of the
  // only dimension with several ranks.
  std::string strategy_on_mesh() const;
  // Returns the plan for strategy "planned" among the ranks along data of this rank, as
  // ShardedOptions::plan_text.
  std::string text_along_data(const Context& meshed) const;
  // Enables checkpointing of the units that the plan checkpoints, if no strategy "planned" does that.
  void checkpoint_units(const torch::nn::Module& module) const;
};

// Returns the mesh of a plan for `world_size` ranks; empty: all along data. Throws UsageError for a plan of
// another number of ranks.
Mesh mesh_of_plan(const cost::StepPlan& plan, int world_size);

// Returns the same strategies, with a "planned" that follows the plan `text`.
StrategyRegistry with_plan(const StrategyRegistry& strategies, const std::string& text);

}  // namespace rondo
