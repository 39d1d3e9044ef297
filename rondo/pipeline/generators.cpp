#include "rondo/pipeline/generators.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

namespace rondo::pipeline {
namespace {

using Lists = std::vector<std::vector<Action>>;

// Builds a V: the rank that is free first takes its best ready pass, in units of equal time. Gradients that
// other ranks wait for have priority, then forward passes; weight gradients fill the rest.
class VBuilder {
 public:
  VBuilder(int ranks, int micro_batches)
      : ranks_(ranks),
        micro_batches_(micro_batches),
        passes_(static_cast<std::size_t>(2 * ranks)),
        free_at_(static_cast<std::size_t>(ranks), 0),
        alive_(static_cast<std::size_t>(ranks), 0),
        lists_(static_cast<std::size_t>(ranks)) {}

  Lists build() {
    for (int left = 3 * 2 * ranks_ * micro_batches_; left > 0; --left) {
      std::optional<Choice> best;
      for (int rank = 0; rank < ranks_; ++rank) {
        const std::optional<Choice> choice = best_of(rank);
        if (choice && (!best || choice->begin < best->begin)) best = choice;
      }
      take(*best);
    }
    return std::move(lists_);
  }

 private:
  // End times of each pass of a stage, by micro-batch.
  struct Passes {
    std::vector<int> forward, input, weight;
  };
  struct Choice {
    int begin = 0;
    int order = 0;  // priority among passes that can begin at the same time
    int rank = 0;
    Action action = {};
  };

  Passes& passes(int stage) { return passes_[static_cast<std::size_t>(stage)]; }

  // Returns when the inputs of the stage's next pass of that kind are ready. Empty: not yet known, or no pass
  // is left.
  std::optional<int> ready(ActionKind kind, int stage) {
    const Passes& own = passes(stage);
    const auto next = [](const std::vector<int>& done) { return done.size(); };
    if (kind == ActionKind::backward_weight) {
      if (next(own.weight) >= own.input.size()) return {};
      return own.input[next(own.weight)];
    }
    const bool forward = kind == ActionKind::forward;
    const std::size_t number = next(forward ? own.forward : own.input);
    if (number >= static_cast<std::size_t>(micro_batches_)) return {};
    if (!forward && number >= own.forward.size()) return {};
    const int at = forward ? 0 : own.forward[number];
    const int before = forward ? stage - 1 : stage + 1;
    if (before < 0 || before >= 2 * ranks_) return at;
    const std::vector<int>& done = forward ? passes(before).forward : passes(before).input;
    if (number >= done.size()) return {};
    return std::max(at, done[number]);
  }

  std::optional<Choice> best_of(int rank) {
    const int first = rank, second = 2 * ranks_ - 1 - rank;
    const int room = 2 * ranks_ - alive_[static_cast<std::size_t>(rank)];
    const std::array<std::pair<ActionKind, int>, 6> wishes = {{{ActionKind::backward_input, first},
                                                               {ActionKind::backward_input, second},
                                                               {ActionKind::forward, second},
                                                               {ActionKind::forward, first},
                                                               {ActionKind::backward_weight, second},
                                                               {ActionKind::backward_weight, first}}};
    std::optional<Choice> best;
    for (int order = 0; order < static_cast<int>(wishes.size()); ++order) {
      const auto [kind, stage] = wishes[static_cast<std::size_t>(order)];
      // The first stage leaves room for activations of the second one; otherwise no gradient would ever be
      // computed.
      if (kind == ActionKind::forward && room < (stage == first ? 2 : 1)) continue;
      const std::optional<int> at = ready(kind, stage);
      if (!at) continue;
      const Choice choice{
          std::max(*at, free_at_[static_cast<std::size_t>(rank)]), order, rank, {kind, stage, 0}};
      if (!best || std::tie(choice.begin, choice.order) < std::tie(best->begin, best->order)) best = choice;
    }
    return best;
  }

  void take(const Choice& choice) {
    const auto rank = static_cast<std::size_t>(choice.rank);
    Action action = choice.action;
    Passes& own = passes(action.stage);
    std::vector<int>& done = action.kind == ActionKind::forward          ? own.forward
                             : action.kind == ActionKind::backward_input ? own.input
                                                                         : own.weight;
    action.micro_batch = static_cast<int>(done.size());
    free_at_[rank] = choice.begin + 1;
    done.push_back(choice.begin + 1);
    if (action.kind == ActionKind::forward) ++alive_[rank];
    if (action.kind == ActionKind::backward_weight) --alive_[rank];
    lists_[rank].push_back(action);
  }

  int ranks_, micro_batches_;
  std::vector<Passes> passes_;  // by stage
  std::vector<int> free_at_;    // by rank
  std::vector<int> alive_;      // by rank: activations
  Lists lists_;
};

}  // namespace

Lists all_forward_all_backward(int ranks, int micro_batches) {
  Lists lists(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      for (int i = 0; i < micro_batches; ++i)
        lists[static_cast<std::size_t>(rank)].push_back({kind, rank, i});
    }
  }
  return lists;
}

Lists one_forward_one_backward(int ranks, int micro_batches, bool split) {
  Lists lists(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& list = lists[static_cast<std::size_t>(rank)];
    int forwards = 0, weights = 0;
    while (forwards < std::min(micro_batches, ranks - rank - 1))
      list.push_back({ActionKind::forward, rank, forwards++});
    for (int backwards = 0; backwards < micro_batches; ++backwards) {
      if (forwards < micro_batches) list.push_back({ActionKind::forward, rank, forwards++});
      list.push_back({split ? ActionKind::backward_input : ActionKind::backward, rank, backwards});
      if (split && backwards + 1 - weights > rank)
        list.push_back({ActionKind::backward_weight, rank, weights++});
    }
    while (split && weights < micro_batches) list.push_back({ActionKind::backward_weight, rank, weights++});
  }
  return lists;
}

Lists interleaved(int ranks, int micro_batches, int chunks) {
  // Order in which a rank's stages take micro-batches in forward; backward has the mirror image.
  const int turns = std::max(1, micro_batches / ranks);
  const int longest = (micro_batches + turns - 1) / turns;
  std::vector<std::pair<int, int>> forward, backward;  // chunk and micro-batch
  for (int turn = 0, first = 0; turn < turns; ++turn) {
    const int size = micro_batches / turns + (turn < micro_batches % turns ? 1 : 0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = first; i < first + size; ++i) {
        forward.emplace_back(chunk, i);
        backward.emplace_back(chunks - 1 - chunk, i);
      }
    }
    first += size;
  }
  Lists lists(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& list = lists[static_cast<std::size_t>(rank)];
    const auto add = [&](ActionKind kind, const std::pair<int, int>& pass) {
      list.push_back({kind, pass.first * ranks + rank, pass.second});
    };
    const auto warm_up = static_cast<std::size_t>(
        std::min(chunks * micro_batches, (chunks - 1) * longest + 2 * (ranks - rank - 1)));
    std::size_t done = 0;
    while (done < warm_up) add(ActionKind::forward, forward[done++]);
    for (const std::pair<int, int>& pass : backward) {
      if (done < forward.size()) add(ActionKind::forward, forward[done++]);
      add(ActionKind::backward, pass);
    }
  }
  return lists;
}

Lists v_shaped(int ranks, int micro_batches) { return VBuilder(ranks, micro_batches).build(); }

}  // namespace rondo::pipeline
