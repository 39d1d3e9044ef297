#include "apps/bench/pipeline/bubble.h"

#include <algorithm>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

using pipeline::ActionKind;

void add_time(pipeline::StageTimes& times, ActionKind kind, double seconds) {
  if (kind == ActionKind::forward) times.forward_s += seconds;
  // A whole backward pass is not taken apart: the simulation adds the two.
  if (kind == ActionKind::backward || kind == ActionKind::backward_input) times.backward_input_s += seconds;
  if (kind == ActionKind::backward_weight) times.backward_weight_s += seconds;
}

}  // namespace

Bubble bubble_of(const pipeline::Schedule& schedule, const std::vector<std::vector<pipeline::Slot>>& ranks) {
  Bubble bubble;
  bubble.times.assign(schedule.rank_of_stage.size(), {0, 0, 0, 0});
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto computations = std::count_if(
        schedule.actions[rank].begin(), schedule.actions[rank].end(),
        [](const pipeline::Action& action) { return action.kind <= ActionKind::backward_weight; });
    if (ranks[rank].size() != static_cast<std::size_t>(computations)) {
      throw Error(str("rank ", rank, " computed ", ranks[rank].size(), " times in a step of schedule ",
                      schedule.name, ", not ", computations));
    }
    double busy = 0;
    for (const pipeline::Slot& slot : ranks[rank]) {
      const double seconds = slot.end_s - slot.begin_s;
      busy += seconds;
      add_time(bubble.times[static_cast<std::size_t>(slot.action.stage)], slot.action.kind, seconds);
      first = std::min(first, slot.begin_s);
      last = std::max(last, slot.end_s);
    }
    bubble.busy_s.push_back(busy);
  }
  bubble.schedule_s = last - first;
  for (const double busy : bubble.busy_s) bubble.idle_s.push_back(bubble.schedule_s - busy);
  for (pipeline::StageTimes& times : bubble.times) {
    for (double* const time : {&times.forward_s, &times.backward_input_s, &times.backward_weight_s})
      *time /= schedule.micro_batches;
  }
  bubble.simulated_idle_s = simulate(schedule, bubble.times).idle_s;
  return bubble;
}

}  // namespace rondo::bench
