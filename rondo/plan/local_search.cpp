#include "rondo/plan/local_search.h"

#include <algorithm>

#include "rondo/base/random.h"
#include "rondo/plan/schedule/index.h"

namespace rondo::plan {
namespace {

using simulate::Candidate;
using simulate::Launch;

bool is_over(const Wait& wait) {
  return wait.deadline.passed() || (wait.cancel != nullptr && wait.cancel->cancelled());
}

// Takes `blocks` of the launch at `place` of `slot` to another slot, to its end or its front.
void move_blocks(Candidate& plan, int slot, std::size_t place, int blocks, int to, bool front) {
  auto& source = plan.launches[index(slot)];
  const int job = source[place].job;
  source[place].blocks -= blocks;
  if (source[place].blocks == 0) source.erase(source.begin() + static_cast<std::ptrdiff_t>(place));
  auto& target = plan.launches[index(to)];
  if (!target.empty() && (front ? target.front() : target.back()).job == job) {
    (front ? target.front() : target.back()).blocks += blocks;
  } else {
    target.insert(front ? target.begin() : target.end(), {job, blocks});
  }
}

// One random change of a schedule; false if the draw came to nothing.
bool change(const cost::StepModel& model, Candidate& plan, RandomStream& random) {
  const int slot = static_cast<int>(random.below(plan.launches.size()));
  auto& launches = plan.launches[index(slot)];
  if (launches.empty()) return false;
  const std::size_t place = random.below(launches.size());
  const Launch launch = launches[place];
  const cost::Job& job = model.jobs[index(launch.job)];
  const std::uint64_t kind = random.below(4);
  if (kind == 0) {  // order within the slot
    if (launches.size() < 2) return false;
    const std::size_t other = random.below(launches.size());
    if (other == place) return false;
    launches.erase(launches.begin() + static_cast<std::ptrdiff_t>(place));
    launches.insert(launches.begin() + static_cast<std::ptrdiff_t>(other), launch);
    return true;
  }
  if (kind == 1 && launch.blocks > 1) {  // part of it behind another
    const int part = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(launch.blocks - 1)));
    launches[place].blocks -= part;
    const std::size_t other = random.below(launches.size() + 1);
    launches.insert(launches.begin() + static_cast<std::ptrdiff_t>(other), {launch.job, part});
    return true;
  }
  const int distance = random.below(4) == 0 ? 2 : 1;
  const int to = slot + (random.below(2) == 0 ? -distance : distance);
  if (to < job.first || to > job.last) return false;
  const int blocks = random.below(2) == 0
                         ? launch.blocks
                         : 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(launch.blocks)));
  move_blocks(plan, slot, place, blocks, to, random.below(2) == 0);
  return true;
}

}  // namespace

Scheduled search_choices(const cost::StepModel& model, Scheduled best, std::uint64_t memory_limit,
                         double target_s, const Wait& wait) {
  const auto try_choices = [&](const std::vector<cost::UnitChoice>& choices) {
    Scheduled candidate = best_list_schedule(model, choices, memory_limit);
    if (!is_better(candidate.result, best.result) ||
        (candidate.result.fits && candidate.result.step_s > best.result.step_s * (1 - 1e-9)))
      return false;
    best = std::move(candidate);
    return true;
  };
  bool improved = true;
  while (improved && !is_over(wait) && (!best.result.fits || best.result.step_s > target_s)) {
    improved = false;
    for (int unit = 0; unit < model.units() && !is_over(wait); ++unit) {
      for (const cost::ChoiceCost& c : model.choices[index(unit)]) {
        std::vector<cost::UnitChoice> choices = best.plan.choices;
        if (choices[index(unit)] == c.choice) continue;
        choices[index(unit)] = c.choice;
        improved = try_choices(choices) || improved;
      }
    }
    for (int a = 0; a < model.units() && !is_over(wait); ++a) {
      for (int b = a + 1; b < model.units() && !is_over(wait); ++b) {
        std::vector<cost::UnitChoice> choices = best.plan.choices;
        if (choices[index(a)] == choices[index(b)] || !model.allows(a, choices[index(b)]) ||
            !model.allows(b, choices[index(a)]))
          continue;
        std::swap(choices[index(a)], choices[index(b)]);
        improved = try_choices(choices) || improved;
      }
    }
  }
  return best;
}

Scheduled with_less_memory(const cost::StepModel& model, Scheduled best, std::uint64_t memory_limit,
                           const Wait& wait) {
  // As fast up to how sums are rounded.
  const double step_s = best.result.step_s * (1 + 1e-13);
  const auto kept = [](const cost::ChoiceCost& c) { return c.persistent_bytes + c.reduced_bytes; };
  for (int unit = 0; unit < model.units(); ++unit) {
    for (const cost::ChoiceCost& c : model.choices[index(unit)]) {
      if (is_over(wait) || !best.result.fits) return best;
      const cost::ChoiceCost& current = model.cost_of(unit, best.plan.choices[index(unit)]);
      if (kept(c) >= kept(current)) continue;
      Scheduled candidate = best;
      candidate.plan.choices[index(unit)] = c.choice;
      if (c.jobs == current.jobs) {
        candidate.result = simulate::simulate_step(model, candidate.plan, memory_limit);
      } else {
        candidate = best_list_schedule(model, candidate.plan.choices, memory_limit);
      }
      if (candidate.result.fits && candidate.result.step_s <= step_s) best = std::move(candidate);
    }
  }
  return best;
}

Scheduled search_schedules(const cost::StepModel& model, Scheduled best, std::uint64_t memory_limit,
                           double target_s, std::uint64_t seed, const Wait& wait) {
  RandomStream random(seed, /*stream=*/17);
  Scheduled current = best;
  long long since = 0;
  const long long patience = 40LL * static_cast<long long>(model.jobs.size()) + 4000;
  while (since < patience && (!best.result.fits || best.result.step_s > target_s)) {
    if ((since & 63) == 0 && is_over(wait)) break;
    ++since;
    Candidate plan = current.plan;
    bool changed = false;
    const std::uint64_t changes = 1 + random.below(3);
    for (std::uint64_t i = 0; i < changes; ++i) changed = change(model, plan, random) || changed;
    if (!changed) continue;
    const auto result = simulate::simulate_step(model, plan, memory_limit);
    // Equal ones are taken too: they lead out of plateaus.
    if (is_better(current.result, result)) continue;
    current = {std::move(plan), result};
    if (!is_better(result, best.result)) continue;
    if (!best.result.fits || result.step_s < best.result.step_s * (1 - 1e-6)) since = 0;
    best = current;
  }
  return best;
}

}  // namespace rondo::plan
