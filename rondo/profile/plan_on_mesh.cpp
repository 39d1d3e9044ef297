#include "rondo/profile/plan_on_mesh.h"

#include <torch/nn/module.h>

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/sharded/sharded_options.h"

namespace rondo {

Mesh mesh_of_plan(const cost::StepPlan& plan, int world_size) {
  if (plan.mesh.empty()) return {};
  if (plan.ranks != world_size) {
    throw UsageError(str(plan.source, " was made for ", plan.ranks, " ranks, and this job has ", world_size,
                         ": start ", plan.ranks, " processes, or make a plan with --ranks ", world_size));
  }
  return ordered_mesh(parse_mesh(plan.mesh, plan.source), world_size);
}

StrategyRegistry with_plan(const StrategyRegistry& strategies, const std::string& text) {
  StrategyRegistry result = strategies;
  result.add<ShardedOptions>(strategies.declaration("planned"),
                             [strategies, text](const Context& context, const ShardedOptions& given) {
                               ShardedOptions options = given;
                               options.plan_text = text;
                               return strategies.make("planned", context, options);
                             });
  return result;
}

OptionValues PlanOnMesh::pipeline_options() const {
  if (!step.pipeline) return {};
  const cost::PlannedPipeline& planned = *step.pipeline;
  OptionValues values{{"pipeline-schedule", planned.schedule},
                      {"micro-batches", std::to_string(planned.micro_batches)},
                      {"stage-cuts", join(planned.stage_cuts, ",")}};
  if (planned.schedule == "interleaved") values["pipeline-chunks"] = std::to_string(planned.chunks);
  return values;
}

std::string PlanOnMesh::strategy_on_mesh() const {
  // Experts that are spread are trained by ddp, and plans of such meshes say so.
  if (size_along(mesh, "expert") > 1) return "ddp";
  if (size_along(mesh, "data") * size_along(mesh, "context") > 1 || mesh.size() < 2) return "planned";
  return size_along(mesh, "pipeline") > 1 ? "pipeline" : "tensor";
}

std::string PlanOnMesh::text_along_data(const Context& meshed) const {
  if (mesh.size() < 2) return text;
  nlohmann::ordered_json units = nlohmann::ordered_json::array();
  if (step.pipeline) {
    // What a rank has of the model is one unit to the strategy along data.
    const auto rank = static_cast<std::size_t>(meshed.group("pipeline").rank());
    units.push_back({{"name", kRootUnit}, {"strategy", cost::name(step.pipeline->strategies.at(rank))}});
  } else {
    // Sizes of a layer's parts are not told: they were taken in proportion.
    for (const cost::PlannedUnit& unit : step.units)
      units.push_back({{"name", unit.name},
                       {"strategy", cost::name(unit.choice.strategy)},
                       {"checkpoint", unit.choice.checkpoint}});
  }
  return nlohmann::ordered_json{{"units", std::move(units)}}.dump();
}

void PlanOnMesh::checkpoint_units(const torch::nn::Module& module) const {
  if (mesh.size() < 2) return;
  for (UnitState* unit : units_of(module)) {
    if (const cost::PlannedUnit* const planned = step.find(unit->name()))
      unit->set_checkpointed(planned->choice.checkpoint);
  }
}

}  // namespace rondo
