#pragma once

#include <string>

#include "rondo/backend/context.h"
#include "rondo/cost/step_plan.h"
#include "rondo/options/option.h"
#include "rondo/strategy/registry.h"

namespace torch::nn {
class Module;
}

namespace rondo {

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
