#include "rondo/pipeline/schedule.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/pipeline/generators.h"

namespace rondo::pipeline {
namespace {

// Puts in what travels between ranks: each receive one computation ahead of the one that needs it, so that
// the message comes meanwhile.
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

}  // namespace rondo::pipeline
