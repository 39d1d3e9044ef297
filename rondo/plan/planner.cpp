#include "rondo/plan/planner.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/text.h"
#include "rondo/plan/search.h"

namespace rondo::plan {
namespace {

// Building a program and the solver's presolve check no clock; their time is estimated by the number of
// variables.
constexpr double kVariablesASecond = 100'000;
constexpr double kMostVariables = 2'000'000;

class Planner {
 public:
  Planner(const cost::StepModel& model, const PlannerOptions& options)
      : model_(model),
        options_(options),
        start_(Clock::now()),
        deadline_(Deadline::after(options.time_limit)),
        solver_(options.use_solver ? make_highs() : nullptr) {}

  PlanResult run() {
    answer_.floor = memory_floor(model_, all());
    answer_.solver = solver_ != nullptr    ? solver_->name()
                     : options_.use_solver ? "heuristic: rondo was built without HiGHS"
                                           : "heuristic: asked for no solver";
    answer_.is_heuristic = solver_ == nullptr;
    if (is_over()) {
      answer_.is_heuristic = true;
      answer_.solver += ", out of time: heuristic plan";
    }
    if (answer_.floor.bytes > options_.memory_limit) {
      answer_.plan = answer_.floor.plan;
      answer_.result = simulate::simulate_step(model_, answer_.plan, answer_.floor.bytes);
      return finish();
    }
    answer_.lower_bound_s = simple_bound();
    answer_.baselines = all_baselines(model_, options_.memory_limit, all());
    take({answer_.floor.plan, simulate::simulate_step(model_, answer_.floor.plan, options_.memory_limit)});
    for (const Baseline& baseline : answer_.baselines) {
      take({baseline.plan, baseline.result});
      if (is_over()) continue;
      take(best_list_schedule(model_, baseline.plan.choices, options_.memory_limit));
    }
    report("baselines");
    if (is_small(model_) && options_.objective == Objective::step_time) {
      const Exhaustive all = exhaustive_search(model_, best_, options_.memory_limit, until(0.5));
      take(all.best);
      if (all.is_proven) bound(best_.result.step_s * (1 - 1e-9));
      report("every plan");
    }
    if (solver_ != nullptr) {
      solve();
    } else {
      local_search(0.9);
    }
    if (options_.objective == Objective::step_time)
      best_ = with_less_memory(model_, std::move(best_), options_.memory_limit, until(1.0));
    return finish();
  }

 private:
  Wait until(double share) const {
    const auto part = std::chrono::duration_cast<Duration>(options_.time_limit * share);
    return {Deadline::after(std::max(Duration::zero(), start_ + part - Clock::now())), options_.cancel};
  }
  Wait all() const { return {deadline_, options_.cancel}; }
  bool is_over() const { return has_ended(all()); }
  double target() const { return answer_.lower_bound_s * (1 + options_.target_gap); }
  bool is_good_enough() const {
    return options_.objective == Objective::step_time && best_.result.fits && best_.result.step_s <= target();
  }

  // Returns the score of a plan under the objective; smaller is better.
  double score(const simulate::StepResult& r) const {
    return options_.objective == Objective::step_time
               ? r.step_s
               : r.step_s - r.compute_s - r.communication_s;  // negative hidden communication
  }

  void take(Scheduled candidate) {
    if (best_.plan.choices.empty() || candidate.result.fits != best_.result.fits
            ? best_.plan.choices.empty() || candidate.result.fits
        : !candidate.result.fits ? is_better(candidate.result, best_.result)
                                 : score(candidate.result) < score(best_.result))
      best_ = std::move(candidate);
  }

  void report(const std::string& what) const {
    if (!options_.progress) return;
    options_.progress(str(what, ": ",
                          best_.result.fits ? str(best_.result.step_s * 1e3, " ms") : "no plan yet",
                          ", lower bound ", answer_.lower_bound_s * 1e3, " ms"));
  }

  // Returns a bound without a solver: compute alone, and the smallest communication of any choice.
  double simple_bound() const {
    double communication = 0;
    for (const auto& unit : model_.choices) {
      double least = unit.front().communication_s;
      for (const cost::ChoiceCost& c : unit) least = std::min(least, c.communication_s);
      communication += least;
    }
    return std::max(model_.least_compute_s(), communication);
  }

  void bound(double seconds) {
    if (options_.objective == Objective::step_time)
      answer_.lower_bound_s = std::max(answer_.lower_bound_s, seconds);
  }

  void solve() {
    if (is_over()) {
      if (!answer_.is_heuristic) answer_.solver += ", out of time: heuristic plan";
      answer_.is_heuristic = true;
      return;
    }
    const double most = std::min(kMostVariables, kVariablesASecond * seconds(options_.time_limit));
    if (const auto size = Formulation::size_of(model_); static_cast<double>(size) > most) {
      answer_.is_heuristic = true;
      answer_.solver += str(", too slow for ", size, " variables in this time: heuristic plan");
      local_search(1.0);
      return;
    }
    const Formulation formulation(model_, options_.memory_limit, options_.objective, false);
    SolveOptions relaxation;
    relaxation.wait = {deadline_, options_.cancel};
    relaxation.relax = true;
    const SolveResult relaxed = solver_->solve(formulation.program(), relaxation);
    if (relaxed.status != SolveStatus::optimal) {
      answer_.is_heuristic = true;
      answer_.solver += relaxed.status == SolveStatus::infeasible
                            ? ", which found no solution: heuristic plan"
                            : ", out of time: heuristic plan";
      local_search(1.0);
      return;
    }
    bound(formulation.seconds(relaxed.bound));
    answer_.seconds_per_byte = formulation.seconds_per_byte(relaxed.row_duals);
    take(best_rounding(model_, formulation.decode(relaxed.values), options_.memory_limit));
    report("relaxation");
    if (is_good_enough() || is_over()) return;
    // First choices with buffers by the byte, then the schedule for these choices with whole buffers, then
    // both at once.
    solve_integers(formulation, until(0.4));
    const bool has_whole_buffers = model_.options.buffers == cost::Buffers::unit;
    const Formulation exact(model_, options_.memory_limit, options_.objective, has_whole_buffers);
    if (has_whole_buffers) {
      const std::vector<cost::UnitChoice> of_best = best_.plan.choices;
      solve_schedule(exact, choices_, until(0.5));
      if (of_best != choices_) solve_schedule(exact, of_best, until(0.55));
    }
    local_search(0.65);
    if (has_whole_buffers && !is_good_enough() && !is_over()) {
      solve_integers(exact, until(0.9));
      local_search(1.0);
    }
  }

  // Solves the integer program for choices and schedule. Its bound is valid for the answer.
  void solve_integers(const Formulation& formulation, const Wait& wait) {
    SolveOptions options = search(formulation, wait);
    // The cutoff excludes plans that are no better than the current one, which shrinks the search.
    const double cutoff_s = best_.result.step_s / (1 + options_.target_gap);
    const bool cuts = best_.result.fits && options_.objective == Objective::step_time;
    if (cuts) options.cutoff = formulation.objective(cutoff_s);
    options.is_enough = [&](double proven) {
      bound(formulation.seconds(std::min(proven, options.cutoff)));
      return is_good_enough();
    };
    const SolveResult result = solver_->solve(formulation.program(), options);
    if (cuts && result.status == SolveStatus::infeasible) bound(cutoff_s);
    if (!result.values.empty()) {
      const FluidSchedule fluid = formulation.decode(result.values);
      choices_ = fluid.choices;
      take(best_rounding(model_, fluid, options_.memory_limit));
    }
    if (result.bound > -kUnbounded) bound(formulation.seconds(std::min(result.bound, options.cutoff)));
    report("integer program");
  }

  // Solves the schedule for given choices. It may give a better plan, but no bound.
  void solve_schedule(const Formulation& formulation, const std::vector<cost::UnitChoice>& choices,
                      const Wait& wait) {
    if (choices.empty() || is_good_enough() || is_over()) return;
    SolveOptions options = search(formulation, wait);
    options.is_enough = [&](double) { return is_good_enough(); };
    const SolveResult result = solver_->solve(formulation.program_for(choices), options);
    if (!result.values.empty())
      take(best_rounding(model_, formulation.decode(result.values), options_.memory_limit));
    report("schedule");
  }

  SolveOptions search(const Formulation& formulation, const Wait& wait) {
    SolveOptions options;
    options.wait = wait;
    options.relative_gap = options_.target_gap * 0.3;
    options.on_solution = [&](const std::vector<double>& values) {
      take(best_rounding(model_, formulation.decode(values), options_.memory_limit));
    };
    return options;
  }

  void local_search(double share) {
    if (is_good_enough() || is_over()) return;
    const double target_s = options_.objective == Objective::step_time ? target() : 0;
    for (int round = 0; round < 2 && !is_over() && !is_good_enough(); ++round) {
      take(search_schedules(model_, best_, options_.memory_limit, target_s, static_cast<std::uint64_t>(round),
                            until(share)));
      if (is_good_enough()) break;
      take(search_choices(model_, best_, options_.memory_limit, target_s, until(share)));
    }
    report("local search");
  }

  PlanResult finish() {
    if (!best_.plan.choices.empty()) {
      answer_.feasible = best_.result.fits;
      answer_.plan = best_.plan;
      answer_.result = best_.result;
    }
    // The solver's tolerance may put its bound slightly above the step of an actual plan.
    if (answer_.feasible) answer_.lower_bound_s = std::min(answer_.lower_bound_s, answer_.result.step_s);
    if (answer_.lower_bound_s > 0)
      answer_.gap =
          answer_.feasible ? (answer_.result.step_s - answer_.lower_bound_s) / answer_.lower_bound_s : 0;
    answer_.solve_s = seconds(Clock::now() - start_);
    return std::move(answer_);
  }

  const cost::StepModel& model_;
  const PlannerOptions& options_;
  const TimePoint start_;
  const Deadline deadline_;
  std::unique_ptr<LinearModel> solver_;
  PlanResult answer_;
  Scheduled best_;
  std::vector<cost::UnitChoice> choices_;  // solution of the last integer program
};

}  // namespace

PlanResult make_plan(const cost::StepModel& model, const PlannerOptions& options) {
  return Planner(model, options).run();
}

}  // namespace rondo::plan
