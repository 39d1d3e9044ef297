#include "rondo/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/plan/schedule/schedules.h"

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

// Starts from the plan with the least memory. Repeatedly makes the change of one unit that saves the most
// communication and recomputation per byte, as long as the step fits.
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

// OSDP (Jiang et al., "OSDP: Optimal Sharded Data Parallel for Distributed Deep Learning", IJCAI 2023). Each
// unit adds its time and memory, nothing overlaps, and dynamic programming minimizes the sum of times within
// the memory limit. Memory is counted in 1024 steps of the limit. Memory of one slot only (workspace, a
// gathered unit, a gradient) is reserved in advance, at its maximum.
Baseline additive_dp(const cost::StepModel& model, std::uint64_t memory_limit) {
  constexpr int kSteps = 1024;
  Baseline best;
  // Reserve for memory of one slot: first the maximum of all units, then more if the result did not fit.
  for (const double share : {1.0, 1.5, 2.0, 3.0}) {
    double passing = 0;
    for (const cost::UnitProfile& u : model.profile.units) {
      passing = std::max(passing, static_cast<double>(u.backward_workspace_bytes) +
                                      static_cast<double>(2 * u.parameter_bytes + 2 * u.gradient_bytes));
    }
    const double available =
        static_cast<double>(memory_limit) - static_cast<double>(model.profile.base_bytes) - share * passing;
    const double step = std::max(1.0, available / kSteps);
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<double> time(kSteps + 1, 0);
    std::vector<std::vector<int>> taken;
    for (int unit = 0; unit < model.units(); ++unit) {
      std::vector<double> next(kSteps + 1, kNever);
      std::vector<int> choice(kSteps + 1, -1);
      const auto& choices = model.choices[static_cast<std::size_t>(unit)];
      const cost::UnitProfile& profile = model.profile.units[static_cast<std::size_t>(unit)];
      for (std::size_t c = 0; c < choices.size(); ++c) {
        const auto& option = choices[c];
        const bool keeps = option.choice.strategy == cost::Strategy::zero3_keep;
        const double bytes = static_cast<double>(option.persistent_bytes + option.held_bytes +
                                                 (keeps ? profile.parameter_bytes : 0));
        const int weight = static_cast<int>(std::min(1e9, std::ceil(bytes / step)));
        const double seconds =
            option.communication_s + model.slots.micro_batches * option.backward_s + option.optimizer_s;
        for (int m = weight; m <= kSteps; ++m) {
          const double total = time[static_cast<std::size_t>(m - weight)] + seconds;
          if (total >= next[static_cast<std::size_t>(m)]) continue;
          next[static_cast<std::size_t>(m)] = total;
          choice[static_cast<std::size_t>(m)] = static_cast<int>(c);
        }
      }
      time = std::move(next);
      taken.push_back(std::move(choice));
    }
    std::vector<cost::UnitChoice> chosen(static_cast<std::size_t>(model.units()));
    int m = kSteps;
    for (int unit = model.units() - 1; unit >= 0; --unit) {
      const auto u = static_cast<std::size_t>(unit);
      const int c = m < 0 ? -1 : taken[u][static_cast<std::size_t>(m)];
      if (c < 0) {
        m = -1;
        chosen[u] = simulate::nearest_choice(model, unit, {cost::Strategy::zero3, true});
        continue;
      }
      const auto& option = model.choices[u][static_cast<std::size_t>(c)];
      chosen[u] = option.choice;
      const bool keeps = option.choice.strategy == cost::Strategy::zero3_keep;
      m -= static_cast<int>(
          std::ceil(static_cast<double>(option.persistent_bytes + option.held_bytes +
                                        (keeps ? model.profile.units[u].parameter_bytes : 0)) /
                    step));
    }
    Baseline candidate{"additive_dp", prefetch_schedule(model, chosen, 1), {}};
    candidate.result = simulate::simulate_step(model, candidate.plan, memory_limit);
    if (best.plan.choices.empty() || is_better(candidate.result, best.result)) best = std::move(candidate);
    if (best.result.fits) break;
  }
  return best;
}

namespace {

simulate::Candidate draw(const cost::StepModel& model, RandomStream& random, double thrift) {
  simulate::Candidate plan;
  plan.launches.resize(static_cast<std::size_t>(model.slots.count()));
  for (int unit = 0; unit < model.units(); ++unit) {
    const auto& choices = model.choices[static_cast<std::size_t>(unit)];
    const cost::ChoiceCost* choice = &choices[random.below(choices.size())];
    if (random.uniform() < thrift) {
      for (const cost::ChoiceCost& other : choices) {
        if (other.persistent_bytes + other.held_bytes < choice->persistent_bytes + choice->held_bytes)
          choice = &other;
      }
    }
    plan.choices.push_back(choice->choice);
    for (const int j : choice->jobs) {
      const cost::Job& job = model.jobs[static_cast<std::size_t>(j)];
      const int last = job.due == model.slots.end() && thrift > 0
                           ? std::min(job.last, job.first + 1)  // reduce early if memory is short
                           : job.last;
      for (int segment = 0; segment < job.segments; ++segment) {
        const int first = thrift > 0 && job.is_gather_buffer() ? last : job.first;
        const auto slot =
            static_cast<std::size_t>(first) + random.below(static_cast<std::uint64_t>(last - first + 1));
        plan.launches[slot].push_back({j, 1});
      }
    }
  }
  for (auto& slot : plan.launches) {
    for (std::size_t i = slot.size(); i > 1; --i) std::swap(slot[i - 1], slot[random.below(i)]);
  }
  return plan;
}

}  // namespace

simulate::Candidate random_plan(const cost::StepModel& model, std::uint64_t seed, std::uint64_t number,
                                std::uint64_t memory_limit) {
  RandomStream random(seed, number);
  simulate::Candidate plan;
  for (const double thrift : {0.0, 0.0, 0.0, 0.3, 0.6, 0.8, 0.9, 1.0}) {
    plan = draw(model, random, thrift);
    if (simulate::simulate_step(model, plan, memory_limit).fits) break;
  }
  return plan;
}

}  // namespace rondo::plan
