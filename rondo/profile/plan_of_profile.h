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

// A plan as strategies take it: what each of them is told of the mesh that the plan has chosen.
struct PlanOnMesh {
  std::string text;  // of the plan file
  cost::StepPlan step = {};
  Mesh mesh = {};  // that the ranks are to lie on; empty: all along data

  // What the pipeline is told, as texts; nothing where the plan has none.
  OptionValues pipeline_options() const;
  // The strategy that is asked for on the mesh: "planned", with spread experts "ddp", or that of the only
  // dimension with ranks.
  std::string strategy_on_mesh() const;
  // What strategy "planned" of the ranks along data does, on this rank of that mesh, as
  // ShardedOptions::plan_text takes it.
  std::string text_along_data(const Context& meshed) const;
  // Switches checkpointing on for the units for which the plan says so, where no strategy "planned" does it.
  void checkpoint_units(const torch::nn::Module& module) const;
};

// The mesh of a plan for so many ranks; empty: all along data. Throws UsageError for a plan of another number
// of ranks.
Mesh mesh_of_plan(const cost::StepPlan& plan, int world_size);

// The same strategies, of which "planned" does what `text` says.
StrategyRegistry with_plan(const StrategyRegistry& strategies, const std::string& text);

}  // namespace rondo
