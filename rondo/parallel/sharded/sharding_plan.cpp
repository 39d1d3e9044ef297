#include "rondo/parallel/sharded/sharding_plan.h"

#include <algorithm>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"

namespace rondo {

ShardingPlan ShardingPlan::from_json(const nlohmann::json& plan, const std::string& source) {
  ShardingPlan result;
  result.source_ = source;
  const auto units = plan.is_object() ? plan.find("units") : plan.end();
  if (!plan.is_object() || units == plan.end() || !units->is_array() || units->empty()) {
    throw UsageError(str(source, ": expected an object with a list \"units\", as `rondo plan` writes it"));
  }
  for (const nlohmann::json& unit : *units) {
    const bool is_entry = unit.is_object() && unit.contains("name") && unit["name"].is_string() &&
                          unit.contains("strategy") && unit["strategy"].is_string();
    if (!is_entry) {
      throw UsageError(str(source, ": an entry of \"units\" is ", unit.dump(),
                           "; expected {\"name\": ..., \"strategy\": ...}"));
    }
    const auto name = unit["name"].get<std::string>();
    const Sharding sharding =
        parse_sharding(unit["strategy"].get<std::string>(), str(source, ", unit '", name, "'"));
    if (!result.units_.emplace(name, sharding).second) {
      throw UsageError(str(source, ": unit '", name, "' has two entries"));
    }
  }
  return result;
}

ShardingPlan ShardingPlan::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(str("the plan file ", path, " cannot be read"));
  const nlohmann::json plan = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (plan.is_discarded()) throw UsageError(str("the plan file ", path, " is not JSON"));
  return from_json(plan, str("plan ", path));
}

ShardingPlan ShardingPlan::random(std::uint64_t seed) {
  ShardingPlan result;
  result.is_random_ = true;
  result.seed_ = seed;
  return result;
}

std::vector<Sharding> ShardingPlan::assign(const std::vector<std::string>& units) const {
  if (is_random_) {
    RandomStream stream(seed_);
    std::vector<Sharding> drawn;
    for (std::size_t i = 0; i < units.size(); ++i)
      drawn.push_back(cost::kStrategies[stream.below(cost::kStrategies.size())]);
    return drawn;
  }
  if (units_.empty()) return std::vector<Sharding>(units.size(), everywhere_);

  std::vector<std::string> missing;
  std::vector<Sharding> assigned;
  for (const std::string& unit : units) {
    const auto entry = units_.find(unit);
    if (entry == units_.end()) {
      missing.push_back(unit);
    } else {
      assigned.push_back(entry->second);
    }
  }
  std::vector<std::string> unknown;
  for (const auto& [name, sharding] : units_) {
    if (std::find(units.begin(), units.end(), name) == units.end()) unknown.push_back(name);
  }
  if (missing.empty() && unknown.empty()) return assigned;
  std::string wrong;
  if (!unknown.empty()) wrong += str(" names units that the model does not have: ", join(unknown, ", "), ";");
  if (!missing.empty()) wrong += str(" leaves out units of the model: ", join(missing, ", "), ";");
  throw UsageError(
      str(source_, wrong, " the model's units are ", join(units, ", "), ". Make a plan for this model"));
}

}  // namespace rondo
