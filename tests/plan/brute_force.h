#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "rondo/cost/step_model.h"

// Finds the fastest plan by brute force: every choice of every unit, every slot and every order of every
// collective (one segment each, one micro-batch). It is a second simulator, written from the rules in
// docs/planner/step-model.md and not from rondo/simulate, so that each verifies the other.
namespace rondo::plan {

class BruteForce {
 public:
  // Searches only for plans faster than `known_s`.
  BruteForce(const cost::StepModel& model, std::uint64_t limit, double known_s)
      : model_(model), slots_(model.slots), limit_(static_cast<double>(limit)), best_(known_s) {}

  double run() {
    choose(0);
    return best_;
  }
  long long schedules() const { return schedules_; }

 private:
  struct Gradient {
    double at = 0;
    double bytes = 0;
  };
  struct State {
    double now = 0;
    double link = 0;
    double work_left = 0;      // remaining compute
    double link_left = 0;      // remaining communication
    std::vector<double> done;  // by job; -1: not launched
    std::vector<Gradient> gradients_due;
    double gathered = 0;
    double gradients = 0;
  };

  void choose(int unit) {
    if (unit == slots_.units) {
      search();
      return;
    }
    for (const cost::ChoiceCost& c : model_.choices[static_cast<std::size_t>(unit)]) {
      chosen_.push_back(&c);
      choose(unit + 1);
      chosen_.pop_back();
    }
  }

  void search() {
    State state;
    state.done.assign(model_.jobs.size(), -1);
    jobs_.clear();
    persistent_ = static_cast<double>(model_.profile.base_bytes);
    optimizer_ = 0;
    for (int u = 0; u < slots_.units; ++u) {
      const cost::ChoiceCost& c = choice(u);
      persistent_ += static_cast<double>(c.persistent_bytes);
      optimizer_ += c.optimizer_s;
      state.work_left += unit(u).forward_s + c.backward_s;
      state.link_left += c.communication_s;
      jobs_.insert(jobs_.end(), c.jobs.begin(), c.jobs.end());
    }
    state.work_left += optimizer_;
    slot(state, 0);
  }

  const cost::ChoiceCost& choice(int u) const { return *chosen_[static_cast<std::size_t>(u)]; }
  const cost::UnitProfile& unit(int u) const { return model_.profile.units[static_cast<std::size_t>(u)]; }
  const cost::Job& job(int j) const { return model_.jobs[static_cast<std::size_t>(j)]; }

  bool is_hopeless(const State& s) const {
    const double bound = std::max(s.now + s.work_left, std::max(s.link, s.now) + s.link_left);
    return bound >= best_ * (1 - 1e-7);
  }

  // Returns activations, workspace and the computing unit's additional memory.
  double fixed(int t) const {
    double bytes = persistent_;
    for (int u = 0; u < slots_.units; ++u) {
      if (t > slots_.backward(0, u)) bytes += static_cast<double>(choice(u).reduced_bytes);
    }
    if (!slots_.is_compute(t)) return bytes;
    for (int u = 0; u < slots_.units; ++u) {
      if (t == slots_.forward(0, u)) bytes += static_cast<double>(choice(u).forward_bytes);
      if (t > slots_.forward(0, u) && t < slots_.backward(0, u))
        bytes += static_cast<double>(choice(u).held_bytes);
      if (t == slots_.backward(0, u)) bytes += static_cast<double>(choice(u).backward_bytes);
    }
    return bytes;
  }

  // Enters slot t: waits for its inputs, then tries every way to launch.
  void slot(State s, int t) {
    if (t == slots_.end()) {
      ++schedules_;
      best_ = std::min(best_, std::max(s.now, s.link));
      return;
    }
    if (slots_.is_compute(t)) {
      for (const int j : choice(slots_.unit(t)).jobs) {
        if (job(j).due == t) s.now = std::max(s.now, s.done[static_cast<std::size_t>(j)]);
      }
      if (!slots_.is_forward(t) && shards_gradients(choice(slots_.unit(t)).choice.strategy))
        s.gradients += static_cast<double>(unit(slots_.unit(t)).gradient_bytes);
    }
    std::vector<int> order;
    launch(s, t, order);
  }

  // Tries all ordered subsets of the jobs that may be launched in slot t and include those that must be.
  void launch(const State& s, int t, std::vector<int>& order) {
    bool is_complete = true;
    for (const int j : jobs_) {
      if (s.done[static_cast<std::size_t>(j)] >= 0 || std::find(order.begin(), order.end(), j) != order.end())
        continue;
      if (job(j).last == t) is_complete = false;
      if (t < job(j).first || t > job(j).last) continue;
      order.push_back(j);
      launch(s, t, order);
      order.pop_back();
    }
    if (is_complete) compute(s, t, order);
  }

  void compute(State s, int t, const std::vector<int>& order) {
    for (const int j : order) {
      if (job(j).is_gather_buffer()) s.gathered += static_cast<double>(job(j).bytes);
    }
    const auto gone = [&] {
      while (!s.gradients_due.empty() && s.gradients_due.front().at <= s.now) {
        s.gradients -= s.gradients_due.front().bytes;
        s.gradients_due.erase(s.gradients_due.begin());
      }
    };
    gone();
    while (fixed(t) + s.gathered + s.gradients > limit_) {
      if (s.gradients_due.empty()) return;
      s.now = s.gradients_due.front().at;
      gone();
    }
    const auto send = [&](int j) {
      s.link = std::max(s.link, s.now) + job(j).segment_s;
      s.link_left -= job(j).segment_s;
      s.done[static_cast<std::size_t>(j)] = s.link;
      const cost::Strategy strategy = choice(job(j).unit).choice.strategy;
      if (job(j).kind == cost::JobKind::reduce_scatter && model_.gradients_leave(strategy))
        s.gradients_due.push_back({s.link, static_cast<double>(job(j).bytes)});
    };
    const double slow = 1 - model_.profile.link.contention;
    const auto work = [&](double seconds) {
      s.work_left -= seconds;
      const double busy = std::max(0.0, s.link - s.now);
      s.now += seconds <= busy * slow ? seconds / slow : busy + (seconds - busy * slow);
    };
    // Slot 0 updates all units. Only gathers of updated parameters may overlap it.
    for (const int j : order) {
      if (t > 0 || job(j).kind == cost::JobKind::gather_updated) send(j);
    }
    if (t == 0) {
      work(optimizer_);
      for (const int j : order) {
        if (job(j).kind != cost::JobKind::gather_updated) send(j);
      }
    }
    if (slots_.is_compute(t)) {
      const int u = slots_.unit(t);
      work(slots_.is_forward(t) ? unit(u).forward_s : choice(u).backward_s);
      const cost::Strategy strategy = choice(u).choice.strategy;
      const bool frees =
          (slots_.is_forward(t) ? strategy == cost::Strategy::zero3 : shards_parameters(strategy)) &&
          !model_.profile.link.parameters_in_place;  // nothing is gathered
      if (!slots_.is_forward(t) && shards_gradients(strategy) && !model_.gradients_leave(strategy))
        s.gradients -= static_cast<double>(unit(u).gradient_bytes);  // reduced in place, and kept
      if (frees) s.gathered -= static_cast<double>(unit(u).parameter_bytes);
    }
    if (is_hopeless(s)) return;
    slot(std::move(s), t + 1);
  }

  const cost::StepModel& model_;
  const cost::Slots slots_;
  const double limit_;
  double best_;
  long long schedules_ = 0;
  std::vector<const cost::ChoiceCost*> chosen_;
  std::vector<int> jobs_;
  double persistent_ = 0;
  double optimizer_ = 0;
};

}  // namespace rondo::plan
