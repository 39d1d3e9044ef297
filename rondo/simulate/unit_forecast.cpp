#include "rondo/simulate/unit_forecast.h"

#include <algorithm>

namespace rondo::simulate {

std::vector<UnitForecast> forecast_units(const cost::StepModel& model, const Timeline& timeline) {
  std::vector<UnitForecast> units(static_cast<std::size_t>(model.units()));
  const auto of = [&](int unit) -> UnitForecast& { return units[static_cast<std::size_t>(unit)]; };
  const auto unit_of_block = [&](const BlockRecord& block) {
    return model.jobs[static_cast<std::size_t>(block.job)].unit;
  };
  for (std::size_t i = 0; i < timeline.slots.size(); ++i) {
    const int slot = static_cast<int>(i);
    const SlotRecord& record = timeline.slots[i];
    if (slot == model.slots.end()) {
      // It waits for everything that is still on its way, one block after the other.
      double waited = record.ready_s;
      for (const BlockRecord& block : timeline.blocks) {
        if (block.end_s <= waited) continue;
        of(unit_of_block(block)).exposed_s += block.end_s - waited;
        waited = block.end_s;
      }
      continue;
    }
    if (model.slots.is_compute(slot)) {
      UnitForecast& unit = of(model.slots.unit(slot));
      unit.exposed_s += record.due_s - record.ready_s;
      unit.peak_bytes = std::max(unit.peak_bytes, record.memory.total());
    }
    if (record.waited_for >= 0) {
      const BlockRecord& block = timeline.blocks[static_cast<std::size_t>(record.waited_for)];
      of(unit_of_block(block)).exposed_s += record.begin_s - record.due_s;
    }
  }
  return units;
}

}  // namespace rondo::simulate
