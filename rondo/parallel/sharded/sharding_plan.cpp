#include "rondo/parallel/sharded/sharding_plan.h"

#include <algorithm>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"

namespace rondo {

ShardingPlan ShardingPlan::random(std::uint64_t seed) {
  ShardingPlan result;
  result.is_random_ = true;
  result.seed_ = seed;
  return result;
}

std::vector<Sharding> ShardingPlan::assign(const std::vector<UnitSize>& units, int ranks) const {
  if (is_random_) {
    RandomStream stream(seed_);
    std::vector<Sharding> drawn;
    for (std::size_t i = 0; i < units.size(); ++i)
      drawn.push_back(cost::kStrategies[stream.below(cost::kStrategies.size())]);
    return drawn;
  }
  if (file_) return assign_from_file(units, ranks);
  return std::vector<Sharding>(units.size(), everywhere_);
}

std::vector<Sharding> ShardingPlan::assign_from_file(const std::vector<UnitSize>& units, int ranks) const {
  if (file_->ranks != 0 && file_->ranks != ranks) {
    throw UsageError(str(source_, " was made for ", file_->ranks, " ranks, and this job has ", ranks,
                         ": start ", file_->ranks, " processes, or make a plan with --ranks ", ranks));
  }
  std::vector<std::string> names, missing, resized, unknown;
  std::vector<Sharding> assigned;
  for (const UnitSize& unit : units) {
    names.push_back(unit.name);
    const auto entry = std::find_if(file_->units.begin(), file_->units.end(),
                                    [&](const cost::PlannedUnit& u) { return u.name == unit.name; });
    if (entry == file_->units.end()) {
      missing.push_back(unit.name);
      continue;
    }
    if (entry->parameter_bytes && *entry->parameter_bytes != unit.parameter_bytes) {
      resized.push_back(str(unit.name, " (", to_string(Bytes{*entry->parameter_bytes}), " in the plan, ",
                            to_string(Bytes{unit.parameter_bytes}), " in the model)"));
    }
    assigned.push_back(entry->choice.strategy);
  }
  for (const cost::PlannedUnit& planned : file_->units) {
    if (std::find(names.begin(), names.end(), planned.name) == names.end()) unknown.push_back(planned.name);
  }
  if (missing.empty() && unknown.empty() && resized.empty()) return assigned;
  std::string wrong;
  if (!unknown.empty()) wrong += str(" names units that the model does not have: ", join(unknown, ", "), ";");
  if (!missing.empty()) wrong += str(" leaves out units of the model: ", join(missing, ", "), ";");
  if (!resized.empty()) wrong += str(" knows units by other sizes: ", join(resized, ", "), ";");
  throw UsageError(
      str(source_, wrong, " the model's units are ", join(names, ", "), ". Profile and plan this model"));
}

}  // namespace rondo
