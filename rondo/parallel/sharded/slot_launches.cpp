#include "rondo/parallel/sharded/slot_launches.h"

#include <algorithm>

namespace rondo {
namespace {

bool is_gather_by_slot(cost::JobKind purpose) {
  return purpose == cost::JobKind::gather_forward || purpose == cost::JobKind::gather_backward;
}

}  // namespace

SlotLaunches::SlotLaunches(const cost::StepPlan& plan, const std::vector<std::string>& units)
    : slots_{static_cast<int>(units.size()), plan.schedule->micro_batches} {
  gathers_.resize(static_cast<std::size_t>(slots_.count()));
  gradients_due_.resize(static_cast<std::size_t>(slots_.count()));
  std::vector<std::size_t> unit_of(plan.units.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    place_.push_back(static_cast<int>(plan.find(units[unit]) - plan.units.data()));
    unit_of[static_cast<std::size_t>(place_.back())] = unit;
  }
  const std::vector<cost::PlannedBlock>& blocks = plan.schedule->blocks;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const cost::PlannedBlock& block = blocks[i];
    const std::size_t unit = unit_of[block.unit];
    std::vector<BlockOrder::Place>& places =
        places_[{unit, static_cast<std::size_t>(block.purpose), static_cast<std::size_t>(block.micro_batch)}];
    if (places.empty() && is_gather_by_slot(block.purpose))
      gathers_[static_cast<std::size_t>(block.slot)].push_back({unit, block.purpose, block.micro_batch});
    places.push_back({block.slot, static_cast<std::int64_t>(i)});
  }
  for (const cost::PlannedWait& wait : plan.schedule->waits) {
    // Blocks leave in the order of the queue, so all that stand before this one are gone too.
    for (std::size_t i = 0; i <= wait.block; ++i) {
      if (blocks[i].purpose != cost::JobKind::reduce_scatter) continue;
      std::vector<std::size_t>& gradients_due = gradients_due_[static_cast<std::size_t>(wait.slot)];
      const std::size_t unit = unit_of[blocks[i].unit];
      const auto& places = places_.at({unit, static_cast<std::size_t>(blocks[i].purpose),
                                       static_cast<std::size_t>(blocks[i].micro_batch)});
      const bool is_last = places.back().priority == static_cast<std::int64_t>(i);
      if (is_last && std::find(gradients_due.begin(), gradients_due.end(), unit) == gradients_due.end())
        gradients_due.push_back(unit);
    }
  }
}

BlockOrder SlotLaunches::order(std::size_t unit, cost::JobKind purpose, int micro_batch) const {
  const auto found =
      places_.find({unit, static_cast<std::size_t>(purpose), static_cast<std::size_t>(micro_batch)});
  if (found == places_.end()) return {0};
  return {found->second, 0};
}

int SlotLaunches::blocks(std::size_t unit) const {
  std::size_t most = 1;
  for (const auto& [key, places] : places_) {
    if (key[0] == unit) most = std::max(most, places.size());
  }
  return static_cast<int>(most);
}

}  // namespace rondo
