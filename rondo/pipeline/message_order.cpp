#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::pipeline {
namespace {

bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_activation || kind == ActionKind::receive_gradient;
}

bool is_send(ActionKind kind) {
  return kind == ActionKind::send_activation || kind == ActionKind::send_gradient;
}

// The receive that a send of this rank meets on another one.
Action receive_of(const Action& send) {
  if (send.kind == ActionKind::send_activation)
    return {ActionKind::receive_activation, send.stage + 1, send.micro_batch};
  return {ActionKind::receive_gradient, send.stage - 1, send.micro_batch};
}

// Whether the computation needs what the receive brings.
bool takes(const Action& computation, const Action& receive) {
  if (computation.stage != receive.stage || computation.micro_batch != receive.micro_batch) return false;
  if (receive.kind == ActionKind::receive_activation) return computation.kind == ActionKind::forward;
  return computation.kind == ActionKind::backward || computation.kind == ActionKind::backward_input;
}

// The place of each message among all of them, by its receive.
using Order = std::map<std::tuple<ActionKind, int, int>, int>;

std::tuple<ActionKind, int, int> key_of(const Action& receive) {
  return {receive.kind, receive.stage, receive.micro_batch};
}

// Messages in the order of the moments at which what they carry is computed; no message depends on another
// one of the same moment, since every computation takes time.
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
  // The last one first.
  std::sort(receives.begin(), receives.end(),
            [&](const Action& a, const Action& b) { return number(a) > number(b); });
  std::vector<int> sent(others.size(), -1);  // by action: the number of what it sends
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (is_send(others[i].kind)) sent[i] = number(receive_of(others[i]));
  }
  // Each goes one computation ahead of the one that needs it, behind the sends that come before it and not
  // behind those that come after it.
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
