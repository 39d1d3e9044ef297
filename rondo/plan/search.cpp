#include "rondo/plan/search.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "rondo/base/random.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {

namespace {

using simulate::Candidate;
using simulate::Launch;

bool is_over(const Wait& wait) {
  return wait.deadline.passed() || (wait.cancel != nullptr && wait.cancel->cancelled());
}

// Moves `segments` segments of the launch at `place` of `slot` to the end or front of another slot.
void move_segments(Candidate& plan, int slot, std::size_t place, int segments, int to, bool front) {
  auto& source = plan.launches[index(slot)];
  const int job = source[place].job;
  source[place].segments -= segments;
  if (source[place].segments == 0) source.erase(source.begin() + static_cast<std::ptrdiff_t>(place));
  auto& target = plan.launches[index(to)];
  if (!target.empty() && (front ? target.front() : target.back()).job == job) {
    (front ? target.front() : target.back()).segments += segments;
  } else {
    target.insert(front ? target.begin() : target.end(), {job, segments});
  }
}

// Makes one random change of a schedule; returns false if the drawn change is not possible.
bool change(const cost::StepModel& model, Candidate& plan, RandomStream& random) {
  const int slot = static_cast<int>(random.below(plan.launches.size()));
  auto& launches = plan.launches[index(slot)];
  if (launches.empty()) return false;
  const std::size_t place = random.below(launches.size());
  const Launch launch = launches[place];
  const cost::Job& job = model.jobs[index(launch.job)];
  const std::uint64_t kind = random.below(4);
  if (kind == 0) {  // reorder within the slot
    if (launches.size() < 2) return false;
    const std::size_t other = random.below(launches.size());
    if (other == place) return false;
    launches.erase(launches.begin() + static_cast<std::ptrdiff_t>(place));
    launches.insert(launches.begin() + static_cast<std::ptrdiff_t>(other), launch);
    return true;
  }
  if (kind == 1 && launch.segments > 1) {  // split: move part of it after another one
    const int part = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(launch.segments - 1)));
    launches[place].segments -= part;
    const std::size_t other = random.below(launches.size() + 1);
    launches.insert(launches.begin() + static_cast<std::ptrdiff_t>(other), {launch.job, part});
    return true;
  }
  const int distance = random.below(4) == 0 ? 2 : 1;
  const int to = slot + (random.below(2) == 0 ? -distance : distance);
  if (to < job.first || to > job.last) return false;
  const int segments = random.below(2) == 0
                           ? launch.segments
                           : 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(launch.segments)));
  move_segments(plan, slot, place, segments, to, random.below(2) == 0);
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
  // Two steps are equally fast if they differ only by the rounding of sums.
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
    // Equally good plans are accepted, too: they lead out of plateaus.
    if (is_better(current.result, result)) continue;
    current = {std::move(plan), result};
    if (!is_better(result, best.result)) continue;
    if (!best.result.fits || result.step_s < best.result.step_s * (1 - 1e-6)) since = 0;
    best = current;
  }
  return best;
}

namespace {

using cost::ChoiceCost;
using cost::Job;
using simulate::Candidate;

constexpr int kMostUnits = 5;

// The simulator's state up to a slot.
struct State {
  double now = 0;
  double link = 0;
  double compute_left = 0;
  double link_left = 0;
  double gathered = 0;
  double gradients = 0;
  std::vector<double> done;                             // by job; negative: not launched
  std::deque<std::pair<double, double>> gradients_due;  // end of a reduction, bytes that it frees
};

class Search {
 public:
  Search(const cost::StepModel& model, Scheduled start, std::uint64_t limit, const Wait& wait)
      : model_(model), slots_(model.slots), limit_(limit), wait_(wait), best_(std::move(start)) {
    for (const auto& choices : model.choices) {
      double compute = kUnbounded;
      double link = kUnbounded;
      for (const ChoiceCost& c : choices) {
        compute = std::min(compute, c.backward_s + c.optimizer_s);
        link = std::min(link, c.communication_s);
      }
      least_compute_.push_back(compute + model.profile.units[least_compute_.size()].forward_s);
      least_link_.push_back(link);
    }
    plan_.launches.resize(index(slots_.count()));
  }

  Exhaustive run() {
    choose(0, 0, 0);
    const bool are_whole =
        std::all_of(model_.jobs.begin(), model_.jobs.end(), [](const Job& j) { return j.segments <= 1; });
    return {best_, !is_stopped_ && are_whole && best_.result.fits};
  }

 private:
  double to_beat() const { return best_.result.fits ? best_.result.step_s * (1 - 1e-9) : kUnbounded; }
  const Job& job(int j) const { return model_.jobs[index(j)]; }
  const ChoiceCost& choice(int unit) const { return *chosen_[index(unit)]; }
  const cost::UnitProfile& profile(int unit) const { return model_.profile.units[index(unit)]; }

  bool is_stopped() {
    if ((++nodes_ & 1023) == 0 &&
        (wait_.deadline.passed() || (wait_.cancel != nullptr && wait_.cancel->cancelled())))
      is_stopped_ = true;
    return is_stopped_;
  }

  void choose(int unit, double compute, double link) {
    const auto rest = static_cast<std::ptrdiff_t>(unit);
    const double all_compute = std::accumulate(least_compute_.begin() + rest, least_compute_.end(), compute);
    const double all_link = std::accumulate(least_link_.begin() + rest, least_link_.end(), link);
    if (is_stopped() || std::max(all_compute, all_link) >= to_beat()) return;
    if (unit == slots_.units) {
      schedule(compute, link);
      return;
    }
    for (const ChoiceCost& c : model_.choices[index(unit)]) {
      chosen_.push_back(&c);
      choose(unit + 1, compute + profile(unit).forward_s + c.backward_s + c.optimizer_s,
             link + c.communication_s);
      chosen_.pop_back();
    }
  }

  void schedule(double compute, double link) {
    jobs_.clear();
    plan_.choices.clear();
    persistent_ = static_cast<double>(model_.profile.base_bytes);
    optimizer_ = 0;
    for (const ChoiceCost* c : chosen_) {
      jobs_.insert(jobs_.end(), c->jobs.begin(), c->jobs.end());
      plan_.choices.push_back(c->choice);
      persistent_ += static_cast<double>(c->persistent_bytes);
      optimizer_ += c->optimizer_s;
    }
    State state;
    state.compute_left = compute;
    state.link_left = link;
    state.done.assign(model_.jobs.size(), -1);
    enter(std::move(state), 0);
  }

  void enter(State s, int slot) {
    if (is_stopped()) return;
    if (slot == slots_.end()) {
      finish(std::max(s.now, s.link));
      return;
    }
    if (slots_.is_compute(slot)) {
      const int unit = slots_.unit(slot);
      for (const int j : choice(unit).jobs) {
        if (job(j).due == slot) s.now = std::max(s.now, s.done[index(j)]);
      }
      if (!slots_.is_forward(slot) && shards_gradients(choice(unit).choice.strategy))
        s.gradients += static_cast<double>(profile(unit).gradient_bytes);
    }
    order(s, slot);
  }

  void finish(double step_s) {
    if (step_s >= to_beat()) return;
    // Uses the simulator's result.
    const auto result = simulate::simulate_step(model_, plan_, limit_);
    if (is_better(result, best_.result)) best_ = {plan_, result};
  }

  // Tries every ordered selection of jobs that may be launched in a slot and includes those that must be.
  void order(const State& s, int slot) {
    auto& launches = plan_.launches[index(slot)];
    bool is_complete = true;
    for (const int j : jobs_) {
      const Job& candidate = job(j);
      if (slot < candidate.first || slot > candidate.last || s.done[index(j)] >= 0) continue;
      const bool is_taken = std::any_of(launches.begin(), launches.end(),
                                        [&](const simulate::Launch& l) { return l.job == j; });
      if (is_taken) continue;
      if (candidate.last == slot) is_complete = false;
      launches.push_back({j, candidate.segments});
      order(s, slot);
      launches.pop_back();
    }
    if (is_complete) compute(s, slot);
  }

  double fixed_bytes(int slot) const {
    double bytes = persistent_;
    for (int unit = 0; unit < slots_.units; ++unit) {
      if (slot > slots_.backward(0, unit)) bytes += static_cast<double>(choice(unit).reduced_bytes);
    }
    for (int unit = 0; slots_.is_compute(slot) && unit < slots_.units; ++unit) {
      const int forward = slots_.forward(0, unit);
      const int backward = slots_.backward(0, unit);
      if (slot == forward) bytes += static_cast<double>(choice(unit).forward_bytes);
      if (slot > forward && slot < backward) bytes += static_cast<double>(choice(unit).held_bytes);
      if (slot == backward) bytes += static_cast<double>(choice(unit).backward_bytes);
    }
    return bytes;
  }

  static void release(State& s) {
    while (!s.gradients_due.empty() && s.gradients_due.front().first <= s.now) {
      s.gradients -= s.gradients_due.front().second;
      s.gradients_due.pop_front();
    }
  }

  void compute(State s, int slot) {
    const auto& launches = plan_.launches[index(slot)];
    for (const simulate::Launch& l : launches) {
      if (job(l.job).is_gather_buffer()) s.gathered += static_cast<double>(job(l.job).bytes);
    }
    release(s);
    const double fixed = fixed_bytes(slot);
    while (fixed + s.gathered + s.gradients > static_cast<double>(limit_)) {
      if (s.gradients_due.empty()) return;
      s.now = s.gradients_due.front().first;
      release(s);
    }
    for (const simulate::Launch& l : launches) {
      if (job(l.job).overlaps(slot)) send(s, l.job);
    }
    if (slot == cost::Slots::update()) work(s, optimizer_);
    for (const simulate::Launch& l : launches) {
      if (!job(l.job).overlaps(slot)) send(s, l.job);
    }
    if (slots_.is_compute(slot)) pass(s, slot);
    if (std::max(s.now + s.compute_left, std::max(s.now, s.link) + s.link_left) >= to_beat()) return;
    enter(std::move(s), slot + 1);
  }

  void send(State& s, int j) const {
    const Job& what = job(j);
    s.link = std::max(s.link, s.now) + what.seconds();
    s.link_left -= what.seconds();
    s.done[index(j)] = s.link;
    if (what.kind == cost::JobKind::reduce_scatter &&
        model_.gradients_leave(choice(what.unit).choice.strategy))
      s.gradients_due.emplace_back(s.link, static_cast<double>(what.bytes));
  }

  // Computes for `seconds`, slower while the link is busy.
  void work(State& s, double seconds) const {
    const double speed = 1 - model_.profile.link.contention;
    const double shared = std::max(0.0, s.link - s.now);
    s.compute_left -= seconds;
    s.now += seconds <= shared * speed ? seconds / speed : shared + (seconds - shared * speed);
  }

  // Runs the forward or backward of a unit.
  void pass(State& s, int slot) const {
    const int unit = slots_.unit(slot);
    const bool is_forward = slots_.is_forward(slot);
    work(s, is_forward ? profile(unit).forward_s : choice(unit).backward_s);
    const cost::Strategy strategy = choice(unit).choice.strategy;
    if (!is_forward && shards_gradients(strategy) && !model_.gradients_leave(strategy))
      s.gradients -= static_cast<double>(profile(unit).gradient_bytes);
    if (!is_forward || strategy == cost::Strategy::zero3)
      s.gathered -= static_cast<double>(choice(unit).gathered_bytes);
  }

  const cost::StepModel& model_;
  const cost::Slots slots_;
  const std::uint64_t limit_;
  const Wait wait_;
  Scheduled best_;
  std::vector<double> least_compute_;  // by unit
  std::vector<double> least_link_;
  std::vector<const ChoiceCost*> chosen_;
  std::vector<int> jobs_;
  Candidate plan_;
  double persistent_ = 0;
  double optimizer_ = 0;
  long long nodes_ = 0;
  bool is_stopped_ = false;
};

}  // namespace

bool is_small(const cost::StepModel& model) {
  return model.units() <= kMostUnits && model.slots.micro_batches == 1;
}

Exhaustive exhaustive_search(const cost::StepModel& model, Scheduled start, std::uint64_t memory_limit,
                             const Wait& wait) {
  return Search(model, std::move(start), memory_limit, wait).run();
}

}  // namespace rondo::plan
