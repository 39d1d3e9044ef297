#include "rondo/simulate/step_simulator.h"

#include <algorithm>
#include <utility>

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
      wanted[static_cast<std::size_t>(job)] = model.jobs[static_cast<std::size_t>(job)].segments;
  }
  std::vector<int> launched(model.jobs.size(), 0);
  for (int slot = 0; slot < model.slots.count(); ++slot) {
    for (const Launch& launch : plan.launches[static_cast<std::size_t>(slot)]) {
      const cost::Job& job = model.jobs.at(static_cast<std::size_t>(launch.job));
      if (slot < job.first || slot > job.last || launch.segments < 1) {
        throw UsageError(str(name(job.kind), " of unit '",
                             model.profile.units[static_cast<std::size_t>(job.unit)].name,
                             "': ", launch.segments, " segments in slot ", slot, ", allowed are slots ",
                             job.first, " to ", job.last));
      }
      launched[static_cast<std::size_t>(launch.job)] += launch.segments;
    }
  }
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    if (launched[j] == wanted[j]) continue;
    const cost::Job& job = model.jobs[j];
    throw UsageError(str(name(job.kind), " of unit '",
                         model.profile.units[static_cast<std::size_t>(job.unit)].name, "': ", launched[j],
                         " segments are launched instead of ", wanted[j]));
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

namespace {

using cost::ChoiceCost;
using cost::Job;
using cost::JobKind;
using cost::StepModel;

// Memory that a completed reduction frees.
struct Release {
  double at_s = 0;
  std::uint64_t bytes = 0;
  int segment = 0;                // its number in link order
  std::uint64_t bytes_until = 0;  // sum over all releases up to this one
};

class Simulation {
 public:
  Simulation(const StepModel& model, const Candidate& plan, std::uint64_t limit, Timeline* timeline)
      : model_(model), slots_(model.slots), plan_(plan), limit_(limit), timeline_(timeline) {
    costs_.reserve(plan.choices.size());
    for (int unit = 0; unit < model.units(); ++unit)
      costs_.push_back(&model.cost_of(unit, plan.choices[static_cast<std::size_t>(unit)]));
    sort_by_due();
    done_.resize(model.jobs.size(), 0);
    launched_.resize(model.jobs.size(), 0);
  }

  StepResult run() {
    memory_.persistent = model_.profile.base_bytes;
    for (const ChoiceCost* cost : costs_) memory_.persistent += cost->persistent_bytes;
    for (int slot = 0; slot < slots_.count(); ++slot) step(slot);
    result_.step_s = now_;
    // With an engine that has no thread of its own, communication stalls computation.
    if (model_.profile.link.parameters_in_place) result_.exposed_s += std::exchange(result_.slowed_s, 0);
    return result_;
  }

 private:
  const ChoiceCost& cost(int unit) const { return *costs_[static_cast<std::size_t>(unit)]; }
  cost::Strategy strategy(int unit) const { return cost(unit).choice.strategy; }
  const cost::UnitProfile& profile(int unit) const {
    return model_.profile.units[static_cast<std::size_t>(unit)];
  }

  // Sorts the chosen jobs by due slot, so that a step is linear in its jobs.
  void sort_by_due() {
    due_begin_.assign(static_cast<std::size_t>(slots_.count()) + 1, 0);
    const auto visit = [&](const auto& of_job) {
      for (const ChoiceCost* cost : costs_) {
        for (const int job : cost->jobs) {
          const int due = model_.jobs[static_cast<std::size_t>(job)].due;
          if (slots_.is_compute(due)) of_job(static_cast<std::size_t>(job), static_cast<std::size_t>(due));
        }
      }
    };
    visit([&](std::size_t, std::size_t due) { ++due_begin_[due + 1]; });
    for (std::size_t slot = 1; slot < due_begin_.size(); ++slot) due_begin_[slot] += due_begin_[slot - 1];
    due_jobs_.resize(due_begin_.back());
    std::vector<std::size_t> next = due_begin_;
    visit([&](std::size_t job, std::size_t due) { due_jobs_[next[due]++] = job; });
    for (const ChoiceCost* cost : costs_) {
      has_reduction_.push_back(std::any_of(cost->jobs.begin(), cost->jobs.end(), [&](int job) {
        return model_.jobs[static_cast<std::size_t>(job)].kind == JobKind::reduce_scatter;
      }));
    }
  }

  void step(int slot) {
    const double ready = now_;
    wait_for_due(slot);
    const double due = now_;
    allocate(slot);
    const int needs_gone = timeline_ == nullptr ? -1 : last_needed_release();
    const int waited_for = wait_for_memory();
    result_.exposed_s += now_ - ready;
    if (memory_.total() > result_.peak_bytes) {
      result_.peak_bytes = memory_.total();
      result_.peak_slot = slot;
    }
    const double begin = now_;
    const MemoryParts during = memory_;
    const std::vector<Launch>& launches = plan_.launches[static_cast<std::size_t>(slot)];
    const auto goes_first = [&](const Launch& launch) {
      return model_.jobs[static_cast<std::size_t>(launch.job)].overlaps(slot);
    };
    for (const Launch& launch : launches) {
      if (goes_first(launch)) send(launch, slot);
    }
    compute(compute_seconds(slot));
    for (const Launch& launch : launches) {
      if (!goes_first(launch)) send(launch, slot);
    }
    if (slots_.is_compute(slot)) release(slot);
    if (timeline_ != nullptr)
      timeline_->slots.push_back({ready, due, begin, now_, waited_for, needs_gone, during});
  }

  // Waits for the segments that a slot needs: those of its unit; at the end all segments.
  void wait_for_due(int slot) {
    if (slot == slots_.end()) {
      now_ = std::max(now_, link_free_);
    } else if (slots_.is_compute(slot)) {
      const auto number = static_cast<std::size_t>(slot);
      for (std::size_t i = due_begin_[number]; i < due_begin_[number + 1]; ++i)
        now_ = std::max(now_, done_[due_jobs_[i]]);
    }
  }

  void allocate(int slot) {
    memory_.workspace = 0;
    if (slots_.is_compute(slot)) {
      const int unit = slots_.unit(slot);
      if (slots_.is_forward(slot)) {
        memory_.activations += cost(unit).held_bytes;
        memory_.workspace = cost(unit).forward_bytes - cost(unit).held_bytes;
      } else {
        const std::uint64_t activations = backward_activations(unit);
        memory_.activations += activations - cost(unit).held_bytes;
        memory_.workspace = cost(unit).backward_bytes - activations;
        if (shards_gradients(strategy(unit))) memory_.gradients += profile(unit).gradient_bytes;
      }
    }
    for (const Launch& launch : plan_.launches[static_cast<std::size_t>(slot)]) {
      const Job& job = model_.jobs[static_cast<std::size_t>(launch.job)];
      if (!job.is_gather_buffer()) continue;
      int& launched = launched_[static_cast<std::size_t>(launch.job)];
      if (model_.options.buffers == cost::Buffers::segment) {
        memory_.gathered += job.bytes_between(launched, launched + launch.segments);
      } else if (launched == 0) {
        memory_.gathered += job.bytes;
      }
      launched += launch.segments;
    }
  }

  // Returns the last segment whose memory the limit needs, whenever it is freed; or -1.
  int last_needed_release() const {
    const std::uint64_t gone = next_release_ == 0 ? 0 : releases_[next_release_ - 1].bytes_until;
    const std::uint64_t total = memory_.total() + gone;
    if (total <= limit_ || releases_.empty()) return -1;
    const auto needed = std::lower_bound(
        releases_.begin(), releases_.end(), total - limit_,
        [](const Release& release, std::uint64_t bytes) { return release.bytes_until < bytes; });
    return needed == releases_.end() ? releases_.back().segment : needed->segment;
  }

  // Waits until the slot fits; returns the last segment that it waited for, or -1.
  int wait_for_memory() {
    while (next_release_ < releases_.size() && releases_[next_release_].at_s <= now_) free_next_gradient();
    int waited_for = -1;
    while (memory_.total() > limit_) {
      if (next_release_ == releases_.size()) {
        result_.fits = false;
        break;
      }
      now_ = std::max(now_, releases_[next_release_].at_s);
      waited_for = releases_[next_release_].segment;
      free_next_gradient();
    }
    return waited_for;
  }

  void free_next_gradient() { memory_.gradients -= releases_[next_release_++].bytes; }

  void will_release(double at_s, std::uint64_t bytes, int segment) {
    const std::uint64_t before = releases_.empty() ? 0 : releases_.back().bytes_until;
    releases_.push_back({at_s, bytes, segment, before + bytes});
  }

  void send(const Launch& launch, int slot) {
    const auto number = static_cast<std::size_t>(launch.job);
    const Job& job = model_.jobs[number];
    if (link_free_ < now_) link_free_ = now_;
    const double begin = link_free_;
    const int number_on_link = carried_;
    carried_ += launch.segments;
    link_free_ += launch.segments * job.segment_s;
    done_[number] = link_free_;
    result_.communication_s += launch.segments * job.segment_s;
    const bool frees = job.kind == JobKind::reduce_scatter && model_.gradients_leave(strategy(job.unit));
    if (!frees && timeline_ == nullptr) return;
    // Reductions are counted here, gathers when their memory is allocated.
    int& launched = launched_[number];
    const int first = job.is_gather_buffer() ? launched - launch.segments : launched;
    if (!job.is_gather_buffer()) launched += launch.segments;
    if (frees && model_.options.buffers == cost::Buffers::segment) {
      for (int i = 0; i < launch.segments; ++i)
        will_release(begin + (i + 1) * job.segment_s, job.segment_bytes(first + i), number_on_link + i);
    } else if (frees && launched == job.segments) {
      will_release(link_free_, job.bytes, carried_ - 1);
    }
    if (timeline_ == nullptr) return;
    for (int i = 0; i < launch.segments; ++i) {
      timeline_->segments.push_back(
          {launch.job, first + i, slot, begin + i * job.segment_s, begin + (i + 1) * job.segment_s});
    }
  }

  double compute_seconds(int slot) const {
    if (slot == cost::Slots::update()) {
      double total = 0;
      for (const ChoiceCost* cost : costs_) total += cost->optimizer_s;
      return total;
    }
    if (!slots_.is_compute(slot)) return 0;
    const int unit = slots_.unit(slot);
    return slots_.is_forward(slot) ? profile(unit).forward_s : cost(unit).backward_s;
  }

  // Computes for `work` seconds, longer while the link is busy.
  void compute(double work) {
    result_.compute_s += work;
    const double speed = 1 - model_.profile.link.contention;
    const double shared = std::max(0.0, link_free_ - now_);
    const double begin = now_;
    now_ =
        work <= shared * speed ? now_ + work / speed : std::max(now_, link_free_) + (work - shared * speed);
    result_.slowed_s += std::max(0.0, now_ - begin - work);  // rounding may give a negative value
  }

  void release(int slot) {
    const int unit = slots_.unit(slot);
    const cost::Strategy s = strategy(unit);
    if (slots_.is_forward(slot)) {
      if (s == cost::Strategy::zero3) memory_.gathered -= cost(unit).gathered_bytes;
      return;
    }
    if (slots_.micro_batch(slot) == 0) memory_.gradients += cost(unit).reduced_bytes;
    memory_.activations -= backward_activations(unit);
    memory_.gathered -= cost(unit).gathered_bytes;
    // Without a reduction (one rank) the gradient is this rank's shard, as with parameters in place.
    if (shards_gradients(s) && (!has_reduction(unit) || !model_.gradients_leave(s)))
      memory_.gradients -= profile(unit).gradient_bytes;
  }

  // Returns the activations that are part of a unit's backward peak; some may be freed by then.
  std::uint64_t backward_activations(int unit) const {
    return std::min(profile(unit).activation_bytes, cost(unit).backward_bytes);
  }
  bool has_reduction(int unit) const { return has_reduction_[static_cast<std::size_t>(unit)]; }

  const StepModel& model_;
  const cost::Slots slots_;
  const Candidate& plan_;
  const std::uint64_t limit_;
  Timeline* timeline_;
  std::vector<const ChoiceCost*> costs_;
  std::vector<std::size_t> due_begin_;  // by slot: first index in due_jobs_
  std::vector<std::size_t> due_jobs_;
  std::vector<bool> has_reduction_;  // by unit
  std::vector<double> done_;         // by job: end of its last segment so far
  std::vector<int> launched_;        // by job: segments so far
  std::vector<Release> releases_;
  std::size_t next_release_ = 0;
  MemoryParts memory_;
  double now_ = 0;
  double link_free_ = 0;
  int carried_ = 0;  // segments on the link so far
  StepResult result_;
};

}  // namespace

StepResult simulate_step(const cost::StepModel& model, const Candidate& plan, std::uint64_t memory_limit,
                         Timeline* timeline) {
  return Simulation(model, plan, memory_limit, timeline).run();
}

std::vector<UnitForecast> forecast_units(const cost::StepModel& model, const Timeline& timeline) {
  std::vector<UnitForecast> units(static_cast<std::size_t>(model.units()));
  const auto of = [&](int unit) -> UnitForecast& { return units[static_cast<std::size_t>(unit)]; };
  const auto unit_of_segment = [&](const SegmentRecord& segment) {
    return model.jobs[static_cast<std::size_t>(segment.job)].unit;
  };
  for (std::size_t i = 0; i < timeline.slots.size(); ++i) {
    const int slot = static_cast<int>(i);
    const SlotRecord& record = timeline.slots[i];
    if (slot == model.slots.end()) {
      // The end waits for all segments in flight, one after the other.
      double waited = record.ready_s;
      for (const SegmentRecord& segment : timeline.segments) {
        if (segment.end_s <= waited) continue;
        of(unit_of_segment(segment)).exposed_s += segment.end_s - waited;
        waited = segment.end_s;
      }
      continue;
    }
    if (model.slots.is_compute(slot)) {
      UnitForecast& unit = of(model.slots.unit(slot));
      unit.exposed_s += record.due_s - record.ready_s;
      unit.peak_bytes = std::max(unit.peak_bytes, record.memory.total());
    }
    if (record.waited_for >= 0) {
      const SegmentRecord& segment = timeline.segments[static_cast<std::size_t>(record.waited_for)];
      of(unit_of_segment(segment)).exposed_s += record.begin_s - record.due_s;
    }
  }
  return units;
}

}  // namespace rondo::simulate
