#include <algorithm>
#include <map>
#include <set>

#include "rondo/base/text.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::pipeline {
namespace {

// On which ranks, and how often.
using Places =
    std::map<Action, std::vector<int>, decltype([](const Action& a, const Action& b) {
               return std::tuple(a.kind, a.stage, a.micro_batch) < std::tuple(b.kind, b.stage, b.micro_batch);
             })>;

bool releases(const Action& action, bool splits) {
  return action.kind == (splits ? ActionKind::backward_weight : ActionKind::backward);
}

bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Action& action) { return action.kind == ActionKind::backward_weight; });
  });
}

}  // namespace

std::vector<std::string> faults_of(const Schedule& schedule) {
  std::vector<std::string> faults;
  Places places;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (const Action& action : schedule.actions[rank]) places[action].push_back(static_cast<int>(rank));
  }
  const auto rank_of = [&](int stage) { return schedule.rank_of_stage[static_cast<std::size_t>(stage)]; };
  std::set<const std::vector<int>*> expected;
  const auto expect = [&](ActionKind kind, int stage, int micro_batch) {
    const Action action{kind, stage, micro_batch};
    const auto found = places.find(action);
    if (found == places.end()) {
      faults.push_back(str(to_string(action), " is missing"));
      return;
    }
    expected.insert(&found->second);
    if (found->second != std::vector{rank_of(stage)})
      faults.push_back(str(to_string(action), " is done by ranks {", join(found->second, ", "),
                           "}, its stage is on rank ", rank_of(stage)));
  };
  const bool splits = splits_backward(schedule);
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const bool from_before = stage > 0 && rank_of(stage) != rank_of(stage - 1);
    const bool to_next = stage + 1 < schedule.stages() && rank_of(stage) != rank_of(stage + 1);
    for (int i = 0; i < schedule.micro_batches; ++i) {
      expect(ActionKind::forward, stage, i);
      expect(splits ? ActionKind::backward_input : ActionKind::backward, stage, i);
      if (splits) expect(ActionKind::backward_weight, stage, i);
      if (from_before) {
        expect(ActionKind::receive_activation, stage, i);
        expect(ActionKind::send_gradient, stage, i);
      }
      if (to_next) {
        expect(ActionKind::send_activation, stage, i);
        expect(ActionKind::receive_gradient, stage, i);
      }
    }
  }
  for (const auto& [action, ranks] : places) {
    if (!expected.contains(&ranks)) faults.push_back(str(to_string(action), " has no counterpart"));
  }
  const Simulation run =
      simulate(schedule, std::vector<StageTimes>(schedule.rank_of_stage.size(), StageTimes{}));
  for (const Action& action : run.stuck) faults.push_back(str(to_string(action), " waits for ever"));
  return faults;
}

std::vector<int> peak_activations(const Schedule& schedule) {
  const bool splits = splits_backward(schedule);
  std::vector<int> peaks;
  for (const std::vector<Action>& list : schedule.actions) {
    int alive = 0, peak = 0;
    for (const Action& action : list) {
      if (action.kind == ActionKind::forward) peak = std::max(peak, ++alive);
      if (releases(action, splits)) --alive;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<int> activations_of_stages(const Schedule& schedule) {
  const bool splits = splits_backward(schedule);
  std::vector<int> peaks(schedule.rank_of_stage.size(), 0), alive(peaks.size(), 0);
  for (const std::vector<Action>& list : schedule.actions) {
    for (const Action& action : list) {
      const auto stage = static_cast<std::size_t>(action.stage);
      if (action.kind == ActionKind::forward) peaks[stage] = std::max(peaks[stage], ++alive[stage]);
      if (releases(action, splits)) --alive[stage];
    }
  }
  return peaks;
}

int activation_bound(const Schedule& schedule, int rank) {
  const int p = schedule.ranks, m = schedule.micro_batches, v = schedule.stages() / p;
  if (schedule.name == "1f1b") return std::min(m, p - rank);
  if (schedule.name == "zb_h1") return std::min(m, p);
  if (schedule.name == "zb_v") return std::min(2 * m, 2 * p);
  if (schedule.name == "interleaved") {
    const int turns = std::max(1, m / p);
    return std::min(v * m, (v - 1) * ((m + turns - 1) / turns) + 2 * (p - rank - 1) + 1);
  }
  return m;
}

}  // namespace rondo::pipeline
