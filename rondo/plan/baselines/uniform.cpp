#include <algorithm>

#include "rondo/base/text.h"
#include "rondo/plan/baselines/baselines.h"

namespace rondo::plan {
namespace {

std::vector<cost::UnitChoice> same_for_all(const cost::StepModel& model, cost::UnitChoice wanted) {
  std::vector<cost::UnitChoice> choices;
  for (int unit = 0; unit < model.units(); ++unit)
    choices.push_back(simulate::nearest_choice(model, unit, wanted));
  return choices;
}

Baseline scheduled(const cost::StepModel& model, std::string name,
                   const std::vector<cost::UnitChoice>& choices, int ahead, std::uint64_t memory_limit) {
  Baseline baseline{std::move(name), prefetch_schedule(model, choices, ahead), {}};
  baseline.result = simulate::simulate_step(model, baseline.plan, memory_limit);
  return baseline;
}

}  // namespace

Baseline uniform(const cost::StepModel& model, cost::Strategy strategy, std::uint64_t memory_limit) {
  const std::string name(cost::name(strategy));
  Baseline plain = scheduled(model, name, same_for_all(model, {strategy, false}), 1, memory_limit);
  if (plain.result.fits) return plain;
  return scheduled(model, name, same_for_all(model, {strategy, true}), 1, memory_limit);
}

Baseline fsdp(const cost::StepModel& model, int in_flight, std::uint64_t memory_limit) {
  const std::string name = in_flight == 1 ? "fsdp_prefetch_1" : str("fsdp_limit_", in_flight);
  const int ahead = std::min(in_flight, model.options.prefetch_window);
  Baseline plain =
      scheduled(model, name, same_for_all(model, {cost::Strategy::zero3, false}), ahead, memory_limit);
  if (plain.result.fits) return plain;
  return scheduled(model, name, same_for_all(model, {cost::Strategy::zero3, true}), ahead, memory_limit);
}

Baseline keep_last_k(const cost::StepModel& model, std::uint64_t memory_limit, const Wait& wait) {
  Baseline best;
  for (const bool checkpoint : {false, true}) {
    for (int kept = 0; kept <= model.units(); ++kept) {
      if (has_ended(wait) && !best.plan.choices.empty()) return best;
      std::vector<cost::UnitChoice> choices = same_for_all(model, {cost::Strategy::zero3, checkpoint});
      for (int unit = model.units() - kept; unit < model.units(); ++unit) {
        choices[static_cast<std::size_t>(unit)] =
            simulate::nearest_choice(model, unit, {cost::Strategy::zero3_keep, checkpoint});
      }
      Baseline candidate = scheduled(model, "keep_last_k", choices, 1, memory_limit);
      if (best.plan.choices.empty() || is_better(candidate.result, best.result)) best = std::move(candidate);
    }
  }
  return best;
}

Baseline earliest_deadline_first(const cost::StepModel& model, const simulate::Candidate& choices_of,
                                 std::uint64_t memory_limit) {
  Baseline baseline{
      "earliest_deadline_first",
      list_schedule(model, choices_of.choices, memory_limit, {model.options.prefetch_window, false, true}),
      {}};
  baseline.result = simulate::simulate_step(model, baseline.plan, memory_limit);
  return baseline;
}

std::vector<Baseline> all_baselines(const cost::StepModel& model, std::uint64_t memory_limit,
                                    const Wait& wait) {
  std::vector<Baseline> all;
  for (const cost::Strategy strategy :
       {cost::Strategy::ddp, cost::Strategy::zero1, cost::Strategy::zero2, cost::Strategy::zero3})
    all.push_back(uniform(model, strategy, memory_limit));
  const auto add = [&](const auto& make) {
    if (!has_ended(wait)) all.push_back(make());
  };
  add([&] { return fsdp(model, 1, memory_limit); });
  add([&] { return fsdp(model, 2, memory_limit); });
  add([&] { return keep_last_k(model, memory_limit, wait); });
  add([&] { return greedy_time_per_byte(model, memory_limit, wait); });
  add([&] { return additive_dp(model, memory_limit); });
  const auto best = std::min_element(all.begin(), all.end(), [](const Baseline& a, const Baseline& b) {
    return is_better(a.result, b.result);
  });
  add([&, choices_of = best->plan] { return earliest_deadline_first(model, choices_of, memory_limit); });
  return all;
}

}  // namespace rondo::plan
