#include "rondo/plan/schedule/schedules.h"

#include <algorithm>
#include <cmath>

#include "rondo/plan/solver/linear_model.h"

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

// Orders by deadline, then by readiness.
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
    plan.launches[index(slot)].push_back({j, job.segments});
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
      const double segments = sent * job.segments;
      int until = static_cast<int>(std::floor(segments + 1 - threshold + 1e-6));
      until = slot == job.last ? job.segments : std::clamp(until, launched, job.segments);
      if (until > launched) plan.launches[index(slot)].push_back({j, until - launched});
      launched = until;
    }
  }
  for (std::size_t slot = 0; slot < plan.launches.size(); ++slot) {
    const int next = static_cast<int>(slot) + 1;
    const auto rank = [&](const Job& job) {
      if (job.due == next) return 0;  // it stalls for this job at once
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

namespace {

using cost::UnitChoice;

simulate::StepResult tightest(const cost::StepModel& model, const simulate::Candidate& plan) {
  // With a limit of 0 every possible wait for gradients happens, so the peak is the smallest of this plan.
  return simulate::simulate_step(model, plan, 0);
}

// Lowers the peak by changing one unit's choice at a time, until no change helps.
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
  // Starts from each uniform choice; the result is almost always zero3 with checkpoints itself.
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
  // Proven if no choice of any unit needs less in the peak slot: then this slot alone needs as much.
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

namespace {

using cost::ChoiceCost;
using cost::Job;
using cost::JobKind;
using simulate::Candidate;
using simulate::Launch;

// A copy of the simulator's clock that makes decisions. It keeps a forecast of memory by slot: the choices'
// own memory, with each gather one slot before its use, plus everything gathered earlier than that.
class ListScheduler {
 public:
  ListScheduler(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                std::uint64_t limit, const ListRule& rule)
      : model_(model), slots_(model.slots), rule_(rule), limit_(static_cast<double>(limit)) {
    plan_.choices = choices;
    plan_.launches.resize(index(slots_.count()));
    left_.resize(model.jobs.size(), 0);
    done_.resize(model.jobs.size(), 0);
    for (int unit = 0; unit < model.units(); ++unit)
      costs_.push_back(&model.cost_of(unit, choices[index(unit)]));
    sort_jobs();
    forecast();
  }

  Candidate run() {
    for (int slot = 0; slot < slots_.end(); ++slot) step(slot);
    return std::move(plan_);
  }

 private:
  const ChoiceCost& cost(int unit) const { return *costs_[index(unit)]; }
  const Job& job(int number) const { return model_.jobs[index(number)]; }

  void sort_jobs() {
    for (const ChoiceCost* c : costs_) {
      for (const int j : c->jobs) {
        left_[index(j)] = job(j).segments;
        (job(j).due == slots_.end() ? reductions_ : gathers_).push_back(j);
      }
    }
    std::sort(gathers_.begin(), gathers_.end(),
              [&](int a, int b) { return job(a).due != job(b).due ? job(a).due < job(b).due : a < b; });
    std::sort(reductions_.begin(), reductions_.end(), [&](int a, int b) {
      return job(a).first != job(b).first ? job(a).first < job(b).first : a < b;
    });
    due_.resize(index(slots_.count()));
    last_.resize(index(slots_.count()));
    for (const int j : gathers_) {
      due_[index(job(j).due)].push_back(j);
      last_[index(job(j).last)].push_back(j);
      if (!job(j).is_gather_buffer()) last_updated_due_ = std::max(last_updated_due_, job(j).due);
    }
  }

  // Computes the memory of every slot if each gather comes one slot before its use.
  void forecast() {
    forecast_.assign(index(slots_.count()), static_cast<double>(model_.profile.base_bytes));
    for (int unit = 0; unit < slots_.units; ++unit) {
      const ChoiceCost& c = cost(unit);
      const cost::UnitProfile& profile = model_.profile.units[index(unit)];
      for (double& bytes : forecast_) bytes += static_cast<double>(c.persistent_bytes);
      for (int slot = slots_.backward(0, unit) + 1; slot < slots_.count(); ++slot)
        forecast_[index(slot)] += static_cast<double>(c.reduced_bytes);
      const auto parameters = static_cast<double>(c.gathered_bytes);
      for (int k = 0; k < slots_.micro_batches; ++k) {
        const int forward = slots_.forward(k, unit);
        const int backward = slots_.backward(k, unit);
        forecast_[index(forward)] += static_cast<double>(c.forward_bytes);
        for (int slot = forward + 1; slot < backward; ++slot)
          forecast_[index(slot)] += static_cast<double>(c.held_bytes);
        forecast_[index(backward)] += static_cast<double>(c.backward_bytes);
        if (c.gathered_bytes > 0) {
          const bool keeps = c.choice.strategy == cost::Strategy::zero3_keep;
          for (int slot = forward - 1; slot <= backward; ++slot) {
            if (keeps || slot <= forward || slot >= backward - 1) forecast_[index(slot)] += parameters;
          }
        }
        if (shards_gradients(c.choice.strategy)) {
          forecast_[index(backward)] += static_cast<double>(profile.gradient_bytes);
          if (rule_.spare_gradients && model_.gradients_leave(c.choice.strategy))
            forecast_[index(backward + 1)] += static_cast<double>(profile.gradient_bytes);
        }
      }
    }
  }

  void step(int slot) {
    if (slots_.is_compute(slot)) {
      for (const int j : due_[index(slot)]) now_ = std::max(now_, done_[index(j)]);
    }
    link_free_ = std::max(link_free_, now_);
    if (slot == cost::Slots::update()) {
      update();
      return;
    }
    const double compute = compute_seconds(slot);
    const double end = now_ + compute / (1 - model_.profile.link.contention);
    for (const int j : last_[index(slot)]) launch(j, left_[index(j)], slot);
    if (slot == slots_.epilogue()) {
      for (const int j : reductions_) launch(j, left_[index(j)], slot);
    }
    if (rule_.reductions_first) fill_with_reductions(slot, end);
    fill_with_gathers(slot, end);
    fill_with_reductions(slot, end);
    work(compute);
  }

  // Updated parameters overlap the update; jobs that cannot wait follow it.
  void update() {
    double compute = 0;
    for (const ChoiceCost* c : costs_) compute += c->optimizer_s;
    const double end = compute / (1 - model_.profile.link.contention);
    const int slot = cost::Slots::update();
    for (const int j : gathers_) {
      if (job(j).kind != JobKind::gather_updated) continue;
      launch(j, job(j).last == slot ? left_[index(j)] : needed(j, end), slot);
    }
    work(compute);
    link_free_ = std::max(link_free_, now_);
    for (const int j : last_[index(slot)]) launch(j, left_[index(j)], slot);
  }

  // With contention, a busy link slows computation down.
  void work(double compute) {
    const double speed = 1 - model_.profile.link.contention;
    const double shared = std::max(0.0, link_free_ - now_);
    now_ = compute <= shared * speed ? now_ + compute / speed
                                     : std::max(now_, link_free_) + (compute - shared * speed);
  }

  double compute_seconds(int slot) const {
    if (!slots_.is_compute(slot)) return 0;
    const int unit = slots_.unit(slot);
    return slots_.is_forward(slot) ? model_.profile.units[index(unit)].forward_s : cost(unit).backward_s;
  }

  // Returns how many more segments of a job keep the link busy until `end`.
  int needed(int j, double end) const {
    if (link_free_ >= end) return 0;
    return std::min(left_[index(j)],
                    static_cast<int>(std::ceil((end - link_free_) / job(j).segment_s - 1e-9)));
  }

  void fill_with_reductions(int slot, double end) {
    skip_launched(reductions_, next_reduction_);
    for (std::size_t i = next_reduction_; i < reductions_.size(); ++i) {
      const int j = reductions_[i];
      if (job(j).first > slot || link_free_ >= end) break;
      if (left_[index(j)] > 0) launch(j, needed(j, end), slot);
    }
  }

  void fill_with_gathers(int slot, double end) {
    skip_launched(gathers_, next_gather_);
    for (std::size_t i = next_gather_; i < gathers_.size(); ++i) {
      const int j = gathers_[i];
      const Job& g = job(j);
      if (link_free_ >= end) break;
      // Sorted by deadline: no later job may start yet.
      if (g.due - slot > rule_.depth && g.due > last_updated_due_) break;
      if (left_[index(j)] == 0 || g.first > slot) continue;
      if (!g.is_gather_buffer()) {
        launch(j, needed(j, end), slot);
        continue;
      }
      if (g.due - slot > rule_.depth) continue;
      const int segments = std::min(needed(j, end), segments_with_room(j, slot));
      if (segments > 0) launch(j, segments, slot);
    }
  }

  // Skips jobs at the front that have been launched completely.
  void skip_launched(const std::vector<int>& jobs, std::size_t& next) const {
    while (next < jobs.size() && left_[index(jobs[next])] == 0) ++next;
  }

  // Returns how many segments fit into the forecast of all slots until the one before their use; the forecast
  // includes them from there on.
  int segments_with_room(int j, int slot) const {
    const Job& g = job(j);
    double room = kUnbounded;
    for (int s = slot; s < g.due - 1; ++s) room = std::min(room, limit_ - forecast_[index(s)]);
    if (model_.options.buffers == cost::Buffers::segment)
      return static_cast<int>(
          std::clamp(std::floor(room * g.segments / static_cast<double>(g.bytes)), 0.0, 1e6));
    const bool is_taken = left_[index(j)] < g.segments;
    return is_taken || room >= static_cast<double>(g.bytes) ? left_[index(j)] : 0;
  }

  void launch(int j, int segments, int slot) {
    if (segments <= 0) return;
    const Job& what = job(j);
    if (what.is_gather_buffer()) {
      const bool by_segment = model_.options.buffers == cost::Buffers::segment;
      const int from = what.segments - left_[index(j)];
      const double bytes = by_segment  ? static_cast<double>(what.bytes_between(from, from + segments))
                           : from == 0 ? static_cast<double>(what.bytes)
                                       : 0;
      for (int s = slot; s < what.due - 1; ++s) forecast_[index(s)] += bytes;
    }
    plan_.launches[index(slot)].push_back({j, segments});
    left_[index(j)] -= segments;
    link_free_ += segments * what.segment_s;
    done_[index(j)] = link_free_;
  }

  const cost::StepModel& model_;
  const cost::Slots slots_;
  const ListRule rule_;
  const double limit_;
  Candidate plan_;
  std::vector<const ChoiceCost*> costs_;
  std::vector<int> gathers_;            // by deadline
  std::vector<int> reductions_;         // by first slot
  std::vector<std::vector<int>> due_;   // by slot: gathers that it waits for
  std::vector<std::vector<int>> last_;  // by slot: gathers whose last slot it is
  int last_updated_due_ = 0;            // latest `due` of gathers without a gather buffer
  std::size_t next_gather_ = 0;         // in gathers_: all before it have been launched
  std::size_t next_reduction_ = 0;
  std::vector<int> left_;     // by job: segments to launch
  std::vector<double> done_;  // by job: end of its last segment so far
  std::vector<double> forecast_;
  double now_ = 0;
  double link_free_ = 0;
};

}  // namespace

Candidate list_schedule(const cost::StepModel& model, const std::vector<cost::UnitChoice>& choices,
                        std::uint64_t memory_limit, const ListRule& rule) {
  return ListScheduler(model, choices, memory_limit, rule).run();
}

}  // namespace rondo::plan
