#include "rondo/plan/schedule/schedules.h"

#include <algorithm>
#include <cmath>

namespace rondo::plan {
namespace {

using cost::Job;
using cost::JobKind;
using simulate::Candidate;
using simulate::Launch;

Candidate empty_plan(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices) {
  return {choices, std::vector<std::vector<Launch>>(index(model.slots.count()))};
}

std::vector<int> jobs_of(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices) {
  std::vector<int> jobs;
  for (int unit = 0; unit < model.units(); ++unit) {
    const auto& more = model.cost_of(unit, choices[index(unit)]).jobs;
    jobs.insert(jobs.end(), more.begin(), more.end());
  }
  return jobs;
}

// What is needed first goes first; gradients in the order in which they come.
bool by_deadline(const Job& a, const Job& b) { return a.due != b.due ? a.due < b.due : a.first < b.first; }

}  // namespace

bool is_better(const simulate::StepResult& a, const simulate::StepResult& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.peak_bytes < b.peak_bytes;
  return a.step_s < b.step_s;
}

Candidate prefetch_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                            int ahead) {
  Candidate plan = empty_plan(model, choices);
  std::vector<int> jobs = jobs_of(model, choices);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](int a, int b) { return by_deadline(model.jobs[index(a)], model.jobs[index(b)]); });
  for (const int j : jobs) {
    const Job& job = model.jobs[index(j)];
    const int slot = job.is_gather_buffer() ? std::max(job.first, job.due - ahead) : job.first;
    plan.launches[index(slot)].push_back({j, job.blocks});
  }
  return plan;
}

Scheduled best_list_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                             std::uint64_t memory_limit) {
  Scheduled best;
  best.plan = prefetch_schedule(model, choices, 1);
  best.result = simulate::simulate_step(model, best.plan, memory_limit);
  for (const bool reductions_first : {false, true}) {
    for (const bool spare : {true, false}) {
      for (const int depth : {2, model.options.prefetch_window}) {
        Candidate plan = list_schedule(model, choices, memory_limit, {depth, reductions_first, spare});
        const auto result = simulate::simulate_step(model, plan, memory_limit);
        if (is_better(result, best.result)) best = {std::move(plan), result};
      }
    }
  }
  return best;
}

Candidate round_schedule(const cost::StepModel& model, const FluidSchedule& fluid, double threshold,
                         bool reductions_first) {
  Candidate plan = empty_plan(model, fluid.choices);
  for (const int j : jobs_of(model, fluid.choices)) {
    const Job& job = model.jobs[index(j)];
    double sent = 0;
    int launched = 0;
    for (int slot = job.first; slot <= job.last; ++slot) {
      sent += fluid.fractions[index(j)][index(slot)];
      const double blocks = sent * job.blocks;
      int until = static_cast<int>(std::floor(blocks + 1 - threshold + 1e-6));
      until = slot == job.last ? job.blocks : std::clamp(until, launched, job.blocks);
      if (until > launched) plan.launches[index(slot)].push_back({j, until - launched});
      launched = until;
    }
  }
  for (std::size_t slot = 0; slot < plan.launches.size(); ++slot) {
    const int next = static_cast<int>(slot) + 1;
    const auto rank = [&](const Job& job) {
      if (job.due == next) return 0;  // waited for at once
      const bool is_reduction = job.due == model.slots.end();
      return is_reduction == reductions_first ? 1 : 2;
    };
    std::stable_sort(plan.launches[slot].begin(), plan.launches[slot].end(),
                     [&](const Launch& a, const Launch& b) {
                       const Job& left = model.jobs[index(a.job)];
                       const Job& right = model.jobs[index(b.job)];
                       return rank(left) != rank(right) ? rank(left) < rank(right) : by_deadline(left, right);
                     });
  }
  return plan;
}

Scheduled best_rounding(const cost::StepModel& model, const FluidSchedule& fluid,
                        std::uint64_t memory_limit) {
  Scheduled best = best_list_schedule(model, fluid.choices, memory_limit);
  for (const bool reductions_first : {false, true}) {
    for (const double threshold : {0.02, 0.25, 0.5, 0.75, 0.98}) {
      Candidate plan = round_schedule(model, fluid, threshold, reductions_first);
      const auto result = simulate::simulate_step(model, plan, memory_limit);
      if (is_better(result, best.result)) best = {std::move(plan), result};
    }
  }
  return best;
}

}  // namespace rondo::plan
