#include "rondo/pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/pipeline/generators.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::pipeline {

namespace {

// Inserts messages. Each receive is posted one computation before the one that needs it, so that the message
// arrives meanwhile.
std::vector<Action> with_messages(const Schedule& schedule, const std::vector<Action>& computations) {
  const auto elsewhere = [&](int stage, int other) {
    return other >= 0 && other < schedule.stages() &&
           schedule.rank_of_stage[static_cast<std::size_t>(stage)] !=
               schedule.rank_of_stage[static_cast<std::size_t>(other)];
  };
  const auto receives = [&](const Action& action, std::vector<Action>& into) {
    if (action.kind == ActionKind::forward) {
      if (elsewhere(action.stage, action.stage - 1))
        into.push_back({ActionKind::receive_activation, action.stage, action.micro_batch});
    } else if (action.kind != ActionKind::backward_weight && elsewhere(action.stage, action.stage + 1)) {
      into.push_back({ActionKind::receive_gradient, action.stage, action.micro_batch});
    }
  };
  std::vector<Action> all;
  for (std::size_t i = 0; i < computations.size(); ++i) {
    const Action& action = computations[i];
    if (i == 0) receives(action, all);
    if (i + 1 < computations.size()) receives(computations[i + 1], all);
    all.push_back(action);
    if (action.kind == ActionKind::forward) {
      if (elsewhere(action.stage, action.stage + 1))
        all.push_back({ActionKind::send_activation, action.stage, action.micro_batch});
    } else if (action.kind != ActionKind::backward_weight && elsewhere(action.stage, action.stage - 1)) {
      all.push_back({ActionKind::send_gradient, action.stage, action.micro_batch});
    }
  }
  return all;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
  return names;
}

int stages_per_rank(const std::string& name, int chunks) {
  const std::vector<std::string>& names = schedule_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UsageError(str("there is no pipeline schedule '", name, "'; expected ", join(names, ", ")));
  if (name == "interleaved" && chunks < 2)
    throw UsageError(str("an interleaved schedule has 2 or more stages a rank, not ", chunks));
  return name == "interleaved" ? chunks : name == "zb_v" ? 2 : 1;
}

Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks) {
  if (ranks < 1 || micro_batches < 1)
    throw UsageError(
        str("a pipeline has 1 or more stages and micro-batches, not ", ranks, " and ", micro_batches));
  const int per_rank = stages_per_rank(name, chunks);
  Schedule schedule{.name = name, .ranks = ranks, .micro_batches = micro_batches};
  for (int stage = 0; stage < ranks * per_rank; ++stage) {
    const bool back = name == "zb_v" && stage >= ranks;
    schedule.rank_of_stage.push_back(back ? 2 * ranks - 1 - stage : stage % ranks);
  }
  std::vector<std::vector<Action>> computations;
  if (name == "gpipe") computations = all_forward_all_backward(ranks, micro_batches);
  if (name == "1f1b") computations = one_forward_one_backward(ranks, micro_batches, /*split=*/false);
  if (name == "zb_h1") computations = one_forward_one_backward(ranks, micro_batches, /*split=*/true);
  if (name == "interleaved") computations = interleaved(ranks, micro_batches, chunks);
  if (name == "zb_v") computations = v_shaped(ranks, micro_batches);
  for (const std::vector<Action>& rank : computations)
    schedule.actions.push_back(with_messages(schedule, rank));
  return schedule;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule result{.name = schedule.name,
                  .ranks = schedule.ranks,
                  .micro_batches = schedule.micro_batches,
                  .rank_of_stage = schedule.rank_of_stage};
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::vector<Action> computations;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      if (schedule.rank_of_stage[static_cast<std::size_t>(stage)] != rank) continue;
      for (int i = 0; i < schedule.micro_batches; ++i)
        computations.push_back({ActionKind::forward, stage, i});
    }
    result.actions.push_back(with_messages(result, computations));
  }
  return result;
}

std::string to_string(const Action& action) {
  constexpr char kLetters[] = "FBIWsrSR";
  return str(kLetters[static_cast<std::size_t>(action.kind)], action.stage, ".", action.micro_batch);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    text += str("rank ", rank, ":");
    for (const Action& action : schedule.actions[rank]) text += " " + to_string(action);
    text += "\n";
  }
  return text;
}

namespace {

// Ranks of each action; one entry per occurrence.
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
  for (const Action& action : run.stuck) faults.push_back(str(to_string(action), " waits forever"));
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

namespace {

bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_activation || kind == ActionKind::receive_gradient;
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::send_activation || kind == ActionKind::send_gradient;
}

// Returns the receive on another rank that matches a send of this rank.
Action receive_of(const Action& send) {
  if (send.kind == ActionKind::send_activation)
    return {ActionKind::receive_activation, send.stage + 1, send.micro_batch};
  return {ActionKind::receive_gradient, send.stage - 1, send.micro_batch};
}

// Returns true if the computation needs the received message.
bool takes(const Action& computation, const Action& receive) {
  if (computation.stage != receive.stage || computation.micro_batch != receive.micro_batch) return false;
  if (receive.kind == ActionKind::receive_activation) return computation.kind == ActionKind::forward;
  return computation.kind == ActionKind::backward || computation.kind == ActionKind::backward_input;
}

// Index of each message among all messages, by its receive.
using Order = std::map<std::tuple<ActionKind, int, int>, int>;

std::tuple<ActionKind, int, int> key_of(const Action& receive) {
  return {receive.kind, receive.stage, receive.micro_batch};
}

// Orders messages by the time at which their content is computed. Messages of the same time do not depend on
// each other, since every computation takes time.
Order order_of_messages(const Schedule& schedule) {
  const Simulation run =
      simulate(schedule, std::vector<StageTimes>(schedule.rank_of_stage.size(), StageTimes{}));
  std::vector<std::tuple<double, std::size_t, Action>> sends;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    std::size_t computed = 0;
    for (const Action& action : schedule.actions[rank]) {
      if (is_send(action.kind)) sends.emplace_back(run.slots[rank].at(computed - 1).end_s, rank, action);
      if (!is_send(action.kind) && !is_receive(action.kind)) ++computed;
    }
  }
  std::stable_sort(sends.begin(), sends.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  Order order;
  for (const auto& [at, rank, send] : sends)
    order.emplace(key_of(receive_of(send)), static_cast<int>(order.size()));
  return order;
}

std::vector<Action> placed(const std::vector<Action>& actions, const Order& order) {
  std::vector<Action> others, receives;
  for (const Action& action : actions) (is_receive(action.kind) ? receives : others).push_back(action);
  const auto number = [&](const Action& receive) { return order.at(key_of(receive)); };
  // Descending order.
  std::sort(receives.begin(), receives.end(),
            [&](const Action& a, const Action& b) { return number(a) > number(b); });
  std::vector<int> sent(others.size(), -1);  // by action: index of the message that it sends
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (is_send(others[i].kind)) sent[i] = number(receive_of(others[i]));
  }
  // Places each receive one computation before the one that needs it, after the sends of earlier messages and
  // before the sends of later ones.
  std::vector<std::vector<Action>> before(others.size() + 1);
  std::size_t limit = others.size();
  for (const Action& receive : receives) {
    std::size_t place = 0, computation = 0;
    bool found = false;
    for (std::size_t i = 0; i < others.size() && !found; ++i) {
      if (sent[i] >= 0) continue;
      found = takes(others[i], receive);
      place = std::exchange(computation, i);
    }
    std::size_t earliest = 0;
    const int own = number(receive);
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (sent[i] < 0) continue;
      if (sent[i] < own) earliest = i + 1;
      if (sent[i] > own) limit = std::min(limit, i);
    }
    place = std::min(std::max(place, earliest), limit);
    limit = place;
    before[place].insert(before[place].begin(), receive);
  }
  std::vector<Action> result;
  for (std::size_t i = 0; i <= others.size(); ++i) {
    result.insert(result.end(), before[i].begin(), before[i].end());
    if (i < others.size()) result.push_back(others[i]);
  }
  return result;
}

}  // namespace

Schedule in_message_order(const Schedule& schedule) {
  const Order order = order_of_messages(schedule);
  Schedule result = schedule;
  for (std::vector<Action>& actions : result.actions) actions = placed(actions, order);
  return result;
}

}  // namespace rondo::pipeline
