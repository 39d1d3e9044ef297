#include "rondo/simulate/cluster.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "rondo/base/random.h"

namespace rondo::simulate {

namespace {

using cost::Job;

std::size_t index(int number) { return static_cast<std::size_t>(number); }

// An interval in which a group's link is busy.
struct Busy {
  double begin_s = 0;
  double end_s = 0;
};

class Cluster {
 public:
  Cluster(const cost::StepModel& model, const Candidate& plan, const Stragglers& stragglers)
      : model_(model), slots_(model.slots), plan_(plan), stragglers_(stragglers) {
    ranks_ = model.options.ranks;
    // Replicas of hybrid sharding meet in every reduction. They count as one group, so they wait for each
    // other in gathers, too, which is never faster.
    done_s_.resize(model.jobs.size(), 0);
    now_.assign(index(ranks_), 0);
    computed_.assign(index(ranks_), 0);
    speed_.assign(index(ranks_), 1);
    for (int i = 0; i < stragglers.slow_ranks && i < ranks_; ++i) {
      const auto rank = static_cast<std::int64_t>(i) * ranks_ / std::max(1, stragglers.slow_ranks);
      speed_[static_cast<std::size_t>(rank)] = stragglers.slow_factor;
    }
    for (int unit = 0; unit < model.units(); ++unit)
      costs_.push_back(&model.cost_of(unit, plan.choices[index(unit)]));
  }

  // `alone` gives the segments whose memory must be freed before a slot begins.
  ClusterResult run(const Timeline& alone) {
    for (int slot = 0; slot < slots_.count(); ++slot) step(slot, alone.slots[index(slot)].waited_for);
    ClusterResult result;
    result.step_s = *std::max_element(now_.begin(), now_.end());
    result.exposed_s = result.step_s - *std::min_element(computed_.begin(), computed_.end());
    double waits = 0;
    for (const double computed : computed_) waits += result.step_s - computed;
    result.mean_wait_s = waits / ranks_;
    return result;
  }

 private:
  void step(int slot, int waits_for) {
    const double due = due_time(slot, waits_for);
    double last = 0;
    for (double& now : now_) {
      now = std::max(now, due);
      last = std::max(last, now);
    }
    const std::vector<Launch>& launches = plan_.launches[index(slot)];
    const auto goes_first = [&](const Launch& launch) {
      return model_.jobs[index(launch.job)].overlaps(slot);
    };
    for (const Launch& launch : launches) {
      if (goes_first(launch)) carry(launch, last);
    }
    work(slot);
    const double end = *std::max_element(now_.begin(), now_.end());
    for (const Launch& launch : launches) {
      if (!goes_first(launch)) carry(launch, end);
    }
  }

  void work(int slot) {
    const double work = compute_seconds(slot);
    if (work <= 0) return;
    RandomStream random(stragglers_.seed, static_cast<std::uint64_t>(slot));
    // Intervals that ended before every rank's time are no longer needed.
    const double first = *std::min_element(now_.begin(), now_.end());
    std::size_t from = 0;
    while (from < busy_.size() && busy_[from].end_s <= first) ++from;
    busy_.erase(busy_.begin(), busy_.begin() + static_cast<std::ptrdiff_t>(from));
    for (int rank = 0; rank < ranks_; ++rank) {
      double own = work * speed_[index(rank)];
      if (stragglers_.jitter > 0) own *= 1 + stragglers_.jitter * random.uniform();
      computed_[index(rank)] += own;
      now_[index(rank)] = compute(now_[index(rank)], own);
    }
  }

  double due_time(int slot, int waits_for) const {
    if (slot == slots_.end()) return link_free_s_;
    double due = waits_for < 0 ? 0 : segment_done_s_[index(waits_for)];
    if (!slots_.is_compute(slot)) return due;
    for (const int j : costs_[index(slots_.unit(slot))]->jobs) {
      if (model_.jobs[index(j)].due == slot) due = std::max(due, done_s_[index(j)]);
    }
    return due;
  }

  void carry(const Launch& launch, double launched_s) {
    const Job& job = model_.jobs[index(launch.job)];
    const double begin = std::max(link_free_s_, launched_s);
    for (int i = 1; i <= launch.segments; ++i) segment_done_s_.push_back(begin + i * job.segment_s);
    const double end = begin + launch.segments * job.segment_s;
    if (!busy_.empty() && busy_.back().end_s >= begin) {
      busy_.back().end_s = end;
    } else {
      busy_.push_back({begin, end});
    }
    link_free_s_ = end;
    done_s_[index(launch.job)] = end;
  }

  double compute_seconds(int slot) const {
    if (slot == cost::Slots::update()) {
      double total = 0;
      for (const cost::ChoiceCost* c : costs_) total += c->optimizer_s;
      return total;
    }
    if (!slots_.is_compute(slot)) return 0;
    const int unit = slots_.unit(slot);
    return slots_.is_forward(slot) ? model_.profile.units[index(unit)].forward_s
                                   : costs_[index(unit)]->backward_s;
  }

  // Returns the end of `work` begun at `now`; it is slower while the link is busy.
  double compute(double now, double work) const {
    const double speed = 1 - model_.profile.link.contention;
    if (speed >= 1) return now + work;
    for (const Busy& busy : busy_) {
      if (busy.end_s <= now) continue;
      if (busy.begin_s > now) {
        const double idle = busy.begin_s - now;
        if (work <= idle) return now + work;
        work -= idle;
        now = busy.begin_s;
      }
      const double shared = busy.end_s - now;
      if (work <= shared * speed) return now + work / speed;
      work -= shared * speed;
      now = busy.end_s;
    }
    return now + work;
  }

  const cost::StepModel& model_;
  const cost::Slots slots_;
  const Candidate& plan_;
  const Stragglers& stragglers_;
  int ranks_ = 1;
  std::vector<const cost::ChoiceCost*> costs_;
  std::vector<double> now_;       // by rank
  std::vector<double> computed_;  // by rank
  std::vector<double> speed_;     // by rank: factor of times
  double link_free_s_ = 0;
  std::vector<Busy> busy_;              // ascending, adjacent ones merged
  std::vector<double> done_s_;          // by job
  std::vector<double> segment_done_s_;  // in link order
};

}  // namespace

ClusterResult simulate_cluster(const cost::StepModel& model, const Candidate& plan,
                               std::uint64_t memory_limit, const Stragglers& stragglers) {
  Timeline alone;
  const StepResult one = simulate_step(model, plan, memory_limit, &alone);
  ClusterResult result = Cluster(model, plan, stragglers).run(alone);
  result.peak_bytes = one.peak_bytes;
  return result;
}

double young_interval_s(const FailureModel& model) {
  return std::sqrt(2 * model.checkpoint_s * model.job_mean_time_s());
}

double daly_interval_s(const FailureModel& model) {
  const double mean = model.job_mean_time_s();
  const double c = model.checkpoint_s;
  if (c >= 2 * mean) return mean;
  const double x = std::sqrt(c / (2 * mean));
  return std::sqrt(2 * c * mean) * (1 + x / 3 + x * x / 9) - c;
}

double expected_goodput(const FailureModel& model, double interval_s) {
  const double mean = model.job_mean_time_s();
  const double wall =
      mean * std::exp(model.restart_s / mean) * std::expm1((interval_s + model.checkpoint_s) / mean);
  return interval_s / wall;
}

double simulated_goodput(const FailureModel& model, double interval_s, double useful_s, std::uint64_t seed) {
  RandomStream random(seed, /*stream=*/29);
  const auto next_failure = [&] { return -model.job_mean_time_s() * std::log(1 - random.uniform()); };
  double wall = 0;
  double kept = 0;
  double until_failure = next_failure();
  while (kept < useful_s) {
    const double segment = interval_s + model.checkpoint_s;
    if (segment <= until_failure) {
      wall += segment;
      until_failure -= segment;
      kept += interval_s;
      continue;
    }
    wall += until_failure;
    // A restart may fail, too.
    until_failure = next_failure();
    while (until_failure < model.restart_s) {
      wall += until_failure;
      until_failure = next_failure();
    }
    wall += model.restart_s;
    until_failure -= model.restart_s;
  }
  return kept / wall;
}

}  // namespace rondo::simulate
