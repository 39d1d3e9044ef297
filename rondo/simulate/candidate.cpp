#include "rondo/simulate/candidate.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::simulate {

void check_plan(const cost::StepModel& model, const Candidate& plan) {
  if (static_cast<int>(plan.choices.size()) != model.units())
    throw UsageError(str("the plan has ", plan.choices.size(), " units, the model ", model.units()));
  if (static_cast<int>(plan.launches.size()) != model.slots.count())
    throw UsageError(str("the plan has ", plan.launches.size(), " slots, a step ", model.slots.count()));
  std::vector<int> wanted(model.jobs.size(), 0);
  for (int unit = 0; unit < model.units(); ++unit) {
    for (const int job : model.cost_of(unit, plan.choices[static_cast<std::size_t>(unit)]).jobs)
      wanted[static_cast<std::size_t>(job)] = model.jobs[static_cast<std::size_t>(job)].blocks;
  }
  std::vector<int> launched(model.jobs.size(), 0);
  for (int slot = 0; slot < model.slots.count(); ++slot) {
    for (const Launch& launch : plan.launches[static_cast<std::size_t>(slot)]) {
      const cost::Job& job = model.jobs.at(static_cast<std::size_t>(launch.job));
      if (slot < job.first || slot > job.last || launch.blocks < 1) {
        throw UsageError(str(name(job.kind), " of unit '",
                             model.profile.units[static_cast<std::size_t>(job.unit)].name,
                             "': ", launch.blocks, " blocks in slot ", slot, ", allowed are slots ",
                             job.first, " to ", job.last));
      }
      launched[static_cast<std::size_t>(launch.job)] += launch.blocks;
    }
  }
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    if (launched[j] == wanted[j]) continue;
    const cost::Job& job = model.jobs[j];
    throw UsageError(str(name(job.kind), " of unit '",
                         model.profile.units[static_cast<std::size_t>(job.unit)].name, "': ", launched[j],
                         " blocks are launched instead of ", wanted[j]));
  }
}

cost::UnitChoice nearest_choice(const cost::StepModel& model, int unit, cost::UnitChoice wanted) {
  if (model.allows(unit, wanted)) return wanted;
  if (wanted.strategy == cost::Strategy::zero3) {
    const cost::UnitChoice kept{cost::Strategy::zero3_keep, wanted.checkpoint};
    if (model.allows(unit, kept)) return kept;
    if (model.allows(unit, {cost::Strategy::zero3_keep, false})) return {cost::Strategy::zero3_keep, false};
  }
  if (model.allows(unit, {wanted.strategy, false})) return {wanted.strategy, false};
  return model.choices[static_cast<std::size_t>(unit)].front().choice;
}

}  // namespace rondo::simulate
