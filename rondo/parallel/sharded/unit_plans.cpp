#include "rondo/parallel/sharded/unit_plans.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/parallel/gradients/bucket.h"

namespace rondo {

UnitOrder::UnitOrder(std::size_t units, std::size_t roots) : order_(units), roots_(roots) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  position_ = order_;
}

void UnitOrder::see(std::size_t unit, std::size_t seen) {
  if (is_fixed_) return;
  const auto from = std::find(order_.begin(), order_.end(), unit);
  const auto to = order_.begin() + static_cast<std::ptrdiff_t>(std::min(seen + roots_, order_.size() - 1));
  if (to < from) std::rotate(to, from, from + 1);
  for (std::size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = i;
}

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
  if (!resized.empty()) wrong += str(" has other sizes for units: ", join(resized, ", "), ";");
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

std::vector<UnitGroup> join_small_units(std::vector<ModelUnit> units, const std::vector<Sharding>& shardings,
                                        Bytes most) {
  std::vector<UnitGroup> groups;
  for (std::size_t i = 0; i < units.size(); ++i) {
    ModelUnit& unit = units[i];
    UnitGroup* const last = groups.empty() ? nullptr : &groups.back();
    const bool joins = last != nullptr && last->unit.state != nullptr && unit.state != nullptr &&
                       last->sharding == shardings[i] &&
                       last->unit.parameter_bytes() + unit.parameter_bytes() <= most.count;
    if (joins) {
      last->unit.name = str(last->unit.name, "+", unit.name);
      last->members.push_back(unit.state);
      std::move(unit.parameters.begin(), unit.parameters.end(), std::back_inserter(last->unit.parameters));
    } else {
      UnitGroup group{.sharding = shardings[i]};
      if (unit.state != nullptr) group.members.push_back(unit.state);
      group.unit = std::move(unit);
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<UnitGroup> split_root(std::vector<UnitGroup> groups, Bytes most) {
  const UnitGroup root = groups.front();
  if (most.count == 0 || root.unit.state != nullptr || root.sharding != Sharding::ddp) return groups;
  groups.erase(groups.begin());
  std::vector<std::size_t> order(root.unit.parameters.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // gradients of the last layer come first
  for (const std::vector<std::size_t>& members :
       plan_buckets(gradient_specs(root.unit.parameters), order, std::min(MiB(1), most), most)) {
    UnitGroup bucket{.unit = {.name = root.unit.name}, .sharding = root.sharding};
    for (auto member = members.rbegin(); member != members.rend(); ++member)
      bucket.unit.parameters.push_back(root.unit.parameters[*member]);
    groups.insert(groups.begin(), std::move(bucket));
  }
  return groups;
}

}  // namespace rondo
