#include "rondo/parallel/sharded/unit_plans.h"

#include <algorithm>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

void check_fits(const cost::StepPlan& plan, const std::vector<cost::PlannedUnit>& units, int ranks) {
  if (plan.ranks != 0 && plan.ranks != ranks) {
    throw UsageError(str(plan.source, " was made for ", plan.ranks, " ranks, and this job has ", ranks,
                         ": start ", plan.ranks, " processes, or make a plan with --ranks ", ranks));
  }
  std::vector<std::string> names, missing, resized, unknown;
  for (const cost::PlannedUnit& unit : units) {
    names.push_back(unit.name);
    const cost::PlannedUnit* const planned = plan.find(unit.name);
    if (planned == nullptr) {
      missing.push_back(unit.name);
    } else if (planned->parameter_bytes && planned->parameter_bytes != unit.parameter_bytes) {
      resized.push_back(str(unit.name, " (", to_string(Bytes{*planned->parameter_bytes}), " in the plan, ",
                            to_string(Bytes{*unit.parameter_bytes}), " in the model)"));
    }
  }
  for (const cost::PlannedUnit& planned : plan.units) {
    if (std::find(names.begin(), names.end(), planned.name) == names.end()) unknown.push_back(planned.name);
  }
  if (missing.empty() && unknown.empty() && resized.empty()) return;
  std::string wrong;
  if (!unknown.empty()) wrong += str(" names units that the model does not have: ", join(unknown, ", "), ";");
  if (!missing.empty()) wrong += str(" leaves out units of the model: ", join(missing, ", "), ";");
  if (!resized.empty()) wrong += str(" knows units by other sizes: ", join(resized, ", "), ";");
  throw UsageError(
      str(plan.source, wrong, " the model's units are ", join(names, ", "), ". Profile and plan this model"));
}

}  // namespace

PlanMaker uniform_plan(Sharding everywhere) {
  return [everywhere](const std::vector<cost::PlannedUnit>& units, int ranks) {
    cost::StepPlan plan{.ranks = ranks, .units = units};
    for (cost::PlannedUnit& unit : plan.units) unit.choice.strategy = everywhere;
    return plan;
  };
}

PlanMaker drawn_plan(std::uint64_t seed, bool is_told) {
  return [seed, is_told](const std::vector<cost::PlannedUnit>& units, int ranks) {
    cost::StepPlan plan{.ranks = ranks, .units = units};
    RandomStream stream(seed);
    std::vector<std::string> drawn;
    for (cost::PlannedUnit& unit : plan.units) {
      unit.choice.strategy = cost::kStrategies[stream.below(cost::kStrategies.size())];
      drawn.push_back(str(unit.name, " ", cost::name(unit.choice.strategy)));
    }
    if (is_told) log::info("strategy random has drawn ", join(drawn, ", "));
    return plan;
  };
}

PlanMaker given_plan(cost::StepPlan plan) {
  return [plan = std::move(plan)](const std::vector<cost::PlannedUnit>& units, int ranks) {
    check_fits(plan, units, ranks);
    return plan;
  };
}

}  // namespace rondo
