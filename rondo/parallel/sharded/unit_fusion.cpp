#include "rondo/parallel/sharded/unit_fusion.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "rondo/base/text.h"
#include "rondo/parallel/gradients/bucket.h"

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

std::vector<UnitGroup> split_root(std::vector<UnitGroup> groups, Bytes most) {
  const UnitGroup root = groups.front();
  if (most.count == 0 || root.unit.state != nullptr || root.sharding != Sharding::ddp) return groups;
  groups.erase(groups.begin());
  std::vector<std::size_t> order(root.unit.parameters.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});  // the last layer's gradients come first
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
