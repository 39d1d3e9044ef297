#include "rondo/profile/plan_of_profile.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/unit_gradients.h"
#include "rondo/plan/plan_file.h"

namespace rondo {
namespace {

// Of the limit: a predicted peak is a little off, and what goes beyond the limit ends the training.
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
    // As a number, so that it can be typed as it stands.
    const auto smallest = static_cast<std::uint64_t>(
        std::ceil(static_cast<double>(answer.floor.bytes + beside) / kPlannedShare));
    throw UsageError(str(limit_name, " is infeasible: the smallest limit that any plan fits is ", smallest,
                         "B (", to_string(Bytes{smallest}), "); ", explanation.need));
  }
  return plan::plan_to_json(model, answer, explanation, planner);
}

}  // namespace rondo
