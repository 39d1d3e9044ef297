#include "rondo/profile/plan_of_profile.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/sharded/reduce_scatter.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/plan/plan_file.h"
#include "rondo/profile/plan_for.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

// Share of the limit to plan for. A predicted peak is slightly inexact, and exceeding the limit ends the
// training.
constexpr double kPlannedShare = 0.99;

}  // namespace

JobProfileOptions planning_profile_options(const torch::nn::Module& model, const PlanForOptions& options) {
  JobProfileOptions profile;
  profile.model.optimizer = options.optimizer;
  profile.model.loss = options.loss;
  profile.link.in_flight_limit = options.in_flight_limit;
  profile.link.runs = 5;
  profile.link.contention_runs = 7;
  profile.link.patience = std::chrono::seconds(6);
  std::uint64_t largest = 0;
  for (const at::Tensor& parameter : model.parameters()) largest += parameter.nbytes();
  profile.link.largest = Bytes{std::clamp<std::uint64_t>(largest, KiB(256).count, MiB(64).count)};
  return profile;
}

nlohmann::ordered_json mesh_plan_of_profile(const cost::Profile& profile, int ranks, Bytes limit,
                                            const PlanForOptions& options, const plan::MeshSearch& search,
                                            const std::string& limit_name) {
  cost::StepOptions step;
  step.ranks = ranks;
  step.micro_batches = options.micro_batches;
  plan::PlannerOptions planner;
  planner.memory_limit = static_cast<std::uint64_t>(kPlannedShare * static_cast<double>(limit.count));
  planner.time_limit = options.time_limit;
  const plan::MeshPlan plan = plan::plan_mesh(profile, step, planner, search);
  if (!plan.best().fits)
    throw UsageError(str(limit_name, " is infeasible: the mesh that needs least, ", plan.best().name(), ", ",
                         plan.best().why));
  return mesh_plan_to_json(profile, step, plan, planner);
}

nlohmann::ordered_json plan_of_profile(const cost::Profile& profile, int ranks, Bytes limit,
                                       const PlanForOptions& options, const std::string& limit_name) {
  cost::StepOptions step;
  step.ranks = ranks;
  step.micro_batches = options.micro_batches;
  const cost::StepModel model = cost::make_step_model(profile, step);
  plan::PlannerOptions planner;
  planner.memory_limit = static_cast<std::uint64_t>(kPlannedShare * static_cast<double>(limit.count));
  std::uint64_t gradients = 0;
  for (const cost::UnitProfile& unit : profile.units) gradients += unit.gradient_bytes;
  const std::uint64_t beside = codec_memory(options.codec, Bytes{gradients}, ranks).count;
  planner.memory_limit -= std::min(planner.memory_limit, beside);
  planner.time_limit = options.time_limit;
  const plan::PlanResult answer = plan::make_plan(model, planner);
  const plan::Explanation explanation = plan::explain(model, answer, planner.memory_limit);
  if (!answer.feasible) {
    // A plain number, so that a user can copy it.
    const auto smallest = static_cast<std::uint64_t>(
        std::ceil(static_cast<double>(answer.floor.bytes + beside) / kPlannedShare));
    throw UsageError(str(limit_name, " is infeasible: the smallest limit that any plan fits is ", smallest,
                         "B (", to_string(Bytes{smallest}), "); ", explanation.need));
  }
  return plan::plan_to_json(model, answer, explanation, planner);
}

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
  // Spread experts are trained by ddp, and plans of such meshes have ddp.
  if (size_along(mesh, "expert") > 1) return "ddp";
  if (size_along(mesh, "data") * size_along(mesh, "context") > 1 || mesh.size() < 2) return "planned";
  return size_along(mesh, "pipeline") > 1 ? "pipeline" : "tensor";
}

std::string PlanOnMesh::text_along_data(const Context& meshed) const {
  if (mesh.size() < 2) return text;
  nlohmann::ordered_json units = nlohmann::ordered_json::array();
  if (step.pipeline) {
    // For the strategy along data the rank's part of the model is one unit.
    const auto rank = static_cast<std::size_t>(meshed.group("pipeline").rank());
    units.push_back({{"name", kRootUnit}, {"strategy", cost::name(step.pipeline->strategies.at(rank))}});
  } else {
    // Omits the sizes of parts, which were estimated in proportion.
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

std::string plan_for(const Context& context, Model model, const Batch& batch, Bytes limit,
                     const PlanForOptions& options) {
  const JobProfileOptions measure = planning_profile_options(*model.module, options);
  const std::string made_for = describe_job(model, batch, options.optimizer.name, "of the program", context);
  const cost::Profile profile = profile_job(context, std::move(model), batch, measure, made_for);
  std::string text;
  run_agreed(context, [&] {
    if (context.rank() == 0)
      text =
          plan_of_profile(profile, context.world_size(), limit, options, str("a limit of ", to_string(limit)))
              .dump();
  });
  return broadcast_object(text, context.world()).get<std::string>();
}

}  // namespace rondo
