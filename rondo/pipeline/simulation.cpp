#include "rondo/pipeline/simulation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::pipeline {
namespace {

// Messages that a stage passes to its neighbours; the key adds stage and micro-batch.
enum class Event { activation, gradient };
using Key = std::tuple<Event, int, int>;

class Replay {
 public:
  Replay(const Schedule& schedule, const std::vector<StageTimes>& times)
      : schedule_(schedule), times_(times) {
    const std::size_t ranks = schedule.actions.size();
    result_.slots.resize(ranks);
    result_.busy_s.resize(ranks, 0);
    result_.idle_s.resize(ranks, 0);
    next_.resize(ranks, 0);
    now_.resize(ranks, 0);
  }

  Simulation run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (next_[rank] < schedule_.actions[rank].size() && act(rank)) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      result_.step_s = std::max(result_.step_s, now_[rank]);
      if (next_[rank] < schedule_.actions[rank].size())
        result_.stuck.push_back(schedule_.actions[rank][next_[rank]]);
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank)
      result_.idle_s[rank] = result_.step_s - result_.busy_s[rank];
    return std::move(result_);
  }

 private:
  const StageTimes& times(int stage) const { return times_[static_cast<std::size_t>(stage)]; }
  bool same_rank(int stage, int other) const {
    return schedule_.rank_of_stage[static_cast<std::size_t>(stage)] ==
           schedule_.rank_of_stage[static_cast<std::size_t>(other)];
  }

  // Returns the time at which `stage` has received the message from its neighbour `from`; empty if it is not
  // known yet.
  std::optional<double> arrival(Event event, int stage, int from, int micro_batch) const {
    if (from < 0 || from >= schedule_.stages()) return 0;
    const auto& known = same_rank(stage, from) ? made_ : sent_;
    const auto found = known.find({event, from, micro_batch});
    if (found == known.end()) return {};
    return found->second;
  }

  // Executes the rank's next action; returns false if its inputs are not ready.
  bool act(std::size_t rank) {
    const Action action = schedule_.actions[rank][next_[rank]];
    const auto [kind, stage, micro_batch] = action;
    const StageTimes& t = times(stage);
    std::optional<double> ready = 0;
    double takes = 0;
    Event gives = Event::activation;
    switch (kind) {
      case ActionKind::forward:
        ready = arrival(Event::activation, stage, stage - 1, micro_batch);
        takes = t.forward_s;
        break;
      case ActionKind::backward:
      case ActionKind::backward_input:
        ready = made_.contains({Event::activation, stage, micro_batch})
                    ? arrival(Event::gradient, stage, stage + 1, micro_batch)
                    : std::nullopt;
        takes = t.backward_input_s + (kind == ActionKind::backward ? t.backward_weight_s : 0);
        gives = Event::gradient;
        break;
      case ActionKind::backward_weight:
        if (!made_.contains({Event::gradient, stage, micro_batch})) return false;
        takes = t.backward_weight_s;
        break;
      case ActionKind::send_activation:
      case ActionKind::send_gradient: {
        const Event event = kind == ActionKind::send_gradient ? Event::gradient : Event::activation;
        if (!made_.contains({event, stage, micro_batch})) return false;
        sent_[{event, stage, micro_batch}] = now_[rank] + t.message_s;
        ++next_[rank];
        return true;
      }
      case ActionKind::receive_activation:
      case ActionKind::receive_gradient:
        ++next_[rank];
        return true;
    }
    if (!ready) return false;
    const double begin = std::max(now_[rank], *ready);
    now_[rank] = begin + takes;
    result_.busy_s[rank] += takes;
    result_.slots[rank].push_back({action, begin, now_[rank]});
    if (kind != ActionKind::backward_weight) made_[{gives, stage, micro_batch}] = now_[rank];
    ++next_[rank];
    return true;
  }

  const Schedule& schedule_;
  const std::vector<StageTimes>& times_;
  std::vector<std::size_t> next_;  // by rank: index of the next action
  std::vector<double> now_;        // by rank
  std::map<Key, double> made_;     // time from which a message is ready on its own rank
  std::map<Key, double> sent_;     // time from which a message is on the neighbour's rank
  Simulation result_;
};

}  // namespace

double Simulation::bubble() const {
  return step_s > 0 ? *std::max_element(idle_s.begin(), idle_s.end()) / step_s : 0;
}

Simulation simulate(const Schedule& schedule, const std::vector<StageTimes>& times) {
  if (times.size() != schedule.rank_of_stage.size())
    throw UsageError(
        str("a pipeline of ", schedule.stages(), " stages cannot be simulated with times of ", times.size()));
  return Replay(schedule, times).run();
}

Simulation simulate(const Schedule& schedule, const StageTimes& of_rank) {
  const double per_rank = static_cast<double>(schedule.stages()) / schedule.ranks;
  const StageTimes stage{of_rank.forward_s / per_rank, of_rank.backward_input_s / per_rank,
                         of_rank.backward_weight_s / per_rank, of_rank.message_s};
  return simulate(schedule, std::vector<StageTimes>(schedule.rank_of_stage.size(), stage));
}

}  // namespace rondo::pipeline
