#include <algorithm>

#include "rondo/plan/baselines/baselines.h"
#include "rondo/plan/schedule/memory_floor.h"

namespace rondo::plan {

// Starts from the plan with the least memory and takes, again and again, the change of one unit that saves
// the most communication and recomputation per byte, as long as the step still fits.
Baseline greedy_time_per_byte(const cost::StepModel& model, std::uint64_t memory_limit, const Wait& wait) {
  struct Change {
    int unit = 0;
    const cost::ChoiceCost* to = nullptr;
    double seconds_per_byte = 0;
  };
  Baseline baseline{"greedy_time_per_byte", memory_floor(model, wait).plan, {}};
  baseline.result = simulate::simulate_step(model, baseline.plan, memory_limit);
  std::vector<Change> refused;
  while (true) {
    std::vector<Change> changes;
    for (int unit = 0; unit < model.units(); ++unit) {
      const auto& now = model.cost_of(unit, baseline.plan.choices[static_cast<std::size_t>(unit)]);
      const auto seconds = [&](const cost::ChoiceCost& c) {
        return c.communication_s + model.slots.micro_batches * c.backward_s + c.optimizer_s;
      };
      for (const cost::ChoiceCost& c : model.choices[static_cast<std::size_t>(unit)]) {
        const double saved = seconds(now) - seconds(c);
        if (saved <= 0) continue;
        const auto& parameters = model.profile.units[static_cast<std::size_t>(unit)].parameter_bytes;
        const auto alive = [&](const cost::ChoiceCost& x) {
          const bool keeps = x.choice.strategy == cost::Strategy::zero3_keep;
          return static_cast<double>(x.persistent_bytes + x.held_bytes + (keeps ? parameters : 0));
        };
        changes.push_back({unit, &c, saved / std::max(1.0, alive(c) - alive(now))});
      }
    }
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) { return a.seconds_per_byte > b.seconds_per_byte; });
    bool changed = false;
    for (const Change& change : changes) {
      const bool was_refused = std::any_of(refused.begin(), refused.end(), [&](const Change& r) {
        return r.unit == change.unit && r.to == change.to;
      });
      if (was_refused) continue;
      if (has_ended(wait)) return baseline;
      std::vector<cost::UnitChoice> choices = baseline.plan.choices;
      choices[static_cast<std::size_t>(change.unit)] = change.to->choice;
      simulate::Candidate plan = prefetch_schedule(model, choices, 1);
      const auto result = simulate::simulate_step(model, plan, memory_limit);
      if (!result.fits) {
        refused.push_back(change);
        continue;
      }
      baseline.plan = std::move(plan);
      baseline.result = result;
      changed = true;
      break;
    }
    if (!changed) return baseline;
  }
}

}  // namespace rondo::plan
