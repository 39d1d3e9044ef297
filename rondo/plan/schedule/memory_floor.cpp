#include "rondo/plan/schedule/memory_floor.h"

#include <algorithm>

#include "rondo/plan/schedule/schedules.h"
#include "rondo/plan/solver/solver.h"

namespace rondo::plan {
namespace {

using cost::UnitChoice;

simulate::StepResult tightest(const cost::StepModel& model, const simulate::Candidate& plan) {
  // Under a limit of nothing every wait for gradients is taken, so the peak is the least that this plan has.
  return simulate::simulate_step(model, plan, 0);
}

// Lowers the peak by changing the choice of one unit at a time, until no change helps.
void descend(const cost::StepModel& model, simulate::Candidate& plan, simulate::StepResult& result,
             const Wait& wait) {
  bool improved = true;
  while (improved) {
    improved = false;
    for (int unit = 0; unit < model.units(); ++unit) {
      for (const cost::ChoiceCost& c : model.choices[index(unit)]) {
        std::vector<UnitChoice> choices = plan.choices;
        if (choices[index(unit)] == c.choice) continue;
        if (has_ended(wait)) return;
        choices[index(unit)] = c.choice;
        simulate::Candidate changed = prefetch_schedule(model, choices, 1);
        const auto r = tightest(model, changed);
        if (r.peak_bytes >= result.peak_bytes) continue;
        plan = std::move(changed);
        result = r;
        improved = true;
      }
    }
  }
}

}  // namespace

MemoryFloor memory_floor(const cost::StepModel& model, const Wait& wait) {
  MemoryFloor floor;
  simulate::StepResult best;
  best.peak_bytes = UINT64_MAX;
  // From every uniform choice; the least is almost always zero3 with checkpoints itself.
  for (const cost::Strategy strategy : cost::kStrategies) {
    for (const bool checkpoint : {true, false}) {
      std::vector<UnitChoice> choices;
      for (int unit = 0; unit < model.units(); ++unit)
        choices.push_back(simulate::nearest_choice(model, unit, {strategy, checkpoint}));
      simulate::Candidate plan = prefetch_schedule(model, choices, 1);
      const auto result = tightest(model, plan);
      if (result.peak_bytes >= best.peak_bytes) continue;
      floor.plan = std::move(plan);
      best = result;
    }
  }
  descend(model, floor.plan, best, wait);
  floor.bytes = best.peak_bytes;
  floor.slot = best.peak_slot;
  // Proven when no choice of any unit has less in the slot that decides: then this slot alone needs as much.
  floor.is_proven = !has_ended(wait);
  if (!floor.is_proven) return floor;
  simulate::Timeline before;
  simulate::simulate_step(model, floor.plan, 0, &before);
  for (int unit = 0; unit < model.units() && floor.is_proven; ++unit) {
    for (const cost::ChoiceCost& c : model.choices[index(unit)]) {
      std::vector<UnitChoice> choices = floor.plan.choices;
      choices[index(unit)] = c.choice;
      simulate::Timeline after;
      simulate::simulate_step(model, prefetch_schedule(model, choices, 1), 0, &after);
      if (has_ended(wait) ||
          after.slots[index(floor.slot)].memory.total() < before.slots[index(floor.slot)].memory.total()) {
        floor.is_proven = false;
        break;
      }
    }
  }
  return floor;
}

std::uint64_t memory_ceiling(const cost::StepModel& model) {
  std::uint64_t most = 0;
  for (const cost::Strategy strategy : cost::kStrategies) {
    std::vector<UnitChoice> choices;
    for (int unit = 0; unit < model.units(); ++unit)
      choices.push_back(simulate::nearest_choice(model, unit, {strategy, false}));
    const auto result = simulate::simulate_step(model, prefetch_schedule(model, choices, 1), UINT64_MAX);
    most = std::max(most, result.peak_bytes);
  }
  return most;
}

}  // namespace rondo::plan
