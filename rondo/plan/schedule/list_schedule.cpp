#include <algorithm>
#include <cmath>

#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {
namespace {

using cost::ChoiceCost;
using cost::Job;
using cost::JobKind;
using simulate::Candidate;
using simulate::Launch;

// A copy of the simulator's clock that decides as it goes. It keeps memory as a forecast by slot: what the
// choices hold anyway, with each gather one slot before its use, and what has been gathered earlier than
// that.
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
        left_[index(j)] = job(j).blocks;
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

  // Memory of every slot when gathers come one slot before their use.
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

  // Beside the update go parameters that it has changed, behind it what cannot wait any longer.
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

  // With contention the link slows compute down as long as it is busy.
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

  // How many more blocks of a job the link needs to be busy until `end`.
  int needed(int j, double end) const {
    if (link_free_ >= end) return 0;
    return std::min(left_[index(j)], static_cast<int>(std::ceil((end - link_free_) / job(j).block_s - 1e-9)));
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
      // Sorted by deadline: nothing behind this one may go yet.
      if (g.due - slot > rule_.depth && g.due > last_updated_due_) break;
      if (left_[index(j)] == 0 || g.first > slot) continue;
      if (!g.is_gather_buffer()) {
        launch(j, needed(j, end), slot);
        continue;
      }
      if (g.due - slot > rule_.depth) continue;
      const int blocks = std::min(needed(j, end), blocks_with_room(j, slot));
      if (blocks > 0) launch(j, blocks, slot);
    }
  }

  // What has been launched as a whole stays so: those at the front need not be looked at again.
  void skip_launched(const std::vector<int>& jobs, std::size_t& next) const {
    while (next < jobs.size() && left_[index(jobs[next])] == 0) ++next;
  }

  // Blocks that fit into the forecast of all slots until the one before their use, where it counts them
  // anyway.
  int blocks_with_room(int j, int slot) const {
    const Job& g = job(j);
    double room = kUnbounded;
    for (int s = slot; s < g.due - 1; ++s) room = std::min(room, limit_ - forecast_[index(s)]);
    if (model_.options.buffers == cost::Buffers::block)
      return static_cast<int>(
          std::clamp(std::floor(room * g.blocks / static_cast<double>(g.bytes)), 0.0, 1e6));
    const bool is_taken = left_[index(j)] < g.blocks;
    return is_taken || room >= static_cast<double>(g.bytes) ? left_[index(j)] : 0;
  }

  void launch(int j, int blocks, int slot) {
    if (blocks <= 0) return;
    const Job& what = job(j);
    if (what.is_gather_buffer()) {
      const bool by_block = model_.options.buffers == cost::Buffers::block;
      const int from = what.blocks - left_[index(j)];
      const double bytes = by_block    ? static_cast<double>(what.bytes_between(from, from + blocks))
                           : from == 0 ? static_cast<double>(what.bytes)
                                       : 0;
      for (int s = slot; s < what.due - 1; ++s) forecast_[index(s)] += bytes;
    }
    plan_.launches[index(slot)].push_back({j, blocks});
    left_[index(j)] -= blocks;
    link_free_ += blocks * what.block_s;
    done_[index(j)] = link_free_;
  }

  const cost::StepModel& model_;
  const cost::Slots slots_;
  const ListRule rule_;
  const double limit_;
  Candidate plan_;
  std::vector<const ChoiceCost*> costs_;
  std::vector<int> gathers_;            // by deadline
  std::vector<int> reductions_;         // by the slot from which they may go
  std::vector<std::vector<int>> due_;   // by slot: gathers that it waits for
  std::vector<std::vector<int>> last_;  // by slot: gathers that may not go later
  int last_updated_due_ = 0;            // of the gathers that are no buffers
  std::size_t next_gather_ = 0;         // in gathers_: all before it have been launched
  std::size_t next_reduction_ = 0;
  std::vector<int> left_;     // by job: blocks to launch
  std::vector<double> done_;  // by job: end of its last block so far
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
