#include "rondo/parallel/sharded/unit_fusion.h"

#include <iterator>
#include <utility>

#include "rondo/base/text.h"

namespace rondo {

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

}  // namespace rondo
