#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/plan.h"

namespace rondo::collective::plan_check {

// Symbolic contents of one element of a buffer.
struct Symbol {
  std::vector<bool> ranks;    // ranks with a contribution in the sum; empty: unwritten
  std::int64_t element = -1;  // index in the data, equal in all contributions
};
using Symbols = std::vector<Symbol>;

inline bool is_transfer(const Step& step) { return step.peer >= 0; }
inline bool is_send(const Step& step) { return step.kind == StepKind::send; }

inline bool overlap(const Range& a, const Range& b) {
  return a.buffer == b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// One rank during the run of its plan.
class SymbolicRank {
 public:
  explicit SymbolicRank(const Plan& plan) : plan_(plan) {
    const std::uint64_t elements = plan.bytes.count / plan.element_bytes;
    data_.resize(elements);
    scratch_.resize(plan.scratch.count / plan.element_bytes);
    for (std::uint64_t i = 0; i < elements; ++i) {
      data_[i].element = static_cast<std::int64_t>(i);
      if (contributes(i)) data_[i].ranks = single(plan.rank);
    }
    enter_round();
  }

  bool done() const { return first_ == plan_.steps.size(); }
  const Plan& plan() const { return plan_; }

  // Returns the first pending transfer of this round with `peer` in the given direction.
  const Step* head(int peer, bool sending) const {
    for (std::size_t i = first_; i < end_; ++i) {
      const Step& step = plan_.steps[i];
      if (!happened_[i - first_] && step.peer == peer && is_send(step) == sending) return &step;
    }
    return nullptr;
  }
  // Returns the peers of this round's pending receives.
  std::vector<int> awaited() const {
    std::vector<int> peers;
    for (std::size_t i = first_; i < end_; ++i) {
      const Step& step = plan_.steps[i];
      if (!happened_[i - first_] && is_transfer(step) && !is_send(step)) peers.push_back(step.peer);
    }
    return peers;
  }

  Symbols read(const Step& step, const Range& range) const {
    const auto [begin, end] = elements_of(step, range);
    const Symbols& buffer = symbols(range.buffer);
    Symbols values(buffer.begin() + begin, buffer.begin() + end);
    for (const Symbol& value : values) {
      if (value.ranks.empty()) fail(step, "reads what nobody has written");
    }
    return values;
  }

  void receive(const Step& step, const Symbols& values) {
    write(step, step.kind == StepKind::recv_reduce ? sum(step, read(step, step.range), values) : values);
    happened_[index_of(step)] = true;
  }
  void sent(const Step& step) { happened_[index_of(step)] = true; }

  // Leaves the round if all its transfers are done; returns whether it did.
  bool advance() {
    if (done() || std::find(happened_.begin(), happened_.end(), false) != happened_.end()) return false;
    std::size_t i = end_;
    for (; i < plan_.steps.size() && plan_.steps[i].round == plan_.steps[first_].round; ++i) {
      run_local(plan_.steps[i]);
    }
    first_ = i;
    enter_round();
    return true;
  }

  void check_result() const {
    for (std::uint64_t i = 0; i < data_.size(); ++i) {
      if (!belongs_to_result(i)) continue;
      const Symbol& value = data_[i];
      if (value.element != static_cast<std::int64_t>(i) || value.ranks != expected(i)) {
        throw Error(str(where(), ": element ", i, " of the result does not hold every contribution once"));
      }
    }
  }

  std::string where() const {
    return str(plan_.algorithm, " ", rondo::name(plan_.operation), " of ", plan_.world, " ranks, rank ",
               plan_.rank);
  }

  [[noreturn]] void fail(const Step& step, const std::string& what) const {
    throw Error(str(where(), ", round ", step.round, ": ", describe(step), ": ", what));
  }

 private:
  std::vector<bool> single(int rank) const {
    std::vector<bool> ranks(static_cast<std::size_t>(plan_.world), false);
    ranks[static_cast<std::size_t>(rank)] = true;
    return ranks;
  }

  // Returns the owner of an element if parts belong to ranks.
  int owner(std::uint64_t element) const {
    PlanRequest request;
    request.world = plan_.world;
    request.bytes = plan_.bytes;
    request.element_bytes = plan_.element_bytes;
    for (int rank = 0; rank < plan_.world; ++rank) {
      const Range part = part_of(request, rank);
      if (element * plan_.element_bytes < part.offset + part.bytes) return rank;
    }
    return -1;
  }
  bool contributes(std::uint64_t element) const {
    if (plan_.operation == OperationKind::broadcast) return plan_.rank == plan_.root;
    return plan_.operation != OperationKind::all_gather || owner(element) == plan_.rank;
  }
  bool belongs_to_result(std::uint64_t element) const {
    if (plan_.operation == OperationKind::reduce) return plan_.rank == plan_.root;
    return plan_.operation != OperationKind::reduce_scatter || owner(element) == plan_.rank;
  }
  std::vector<bool> expected(std::uint64_t element) const {
    if (plan_.operation == OperationKind::broadcast) return single(plan_.root);
    if (plan_.operation == OperationKind::all_gather) return single(owner(element));
    return std::vector<bool>(static_cast<std::size_t>(plan_.world), true);
  }

  const Symbols& symbols(Buffer buffer) const { return buffer == Buffer::data ? data_ : scratch_; }

  std::pair<std::ptrdiff_t, std::ptrdiff_t> elements_of(const Step& step, const Range& range) const {
    const std::size_t unit = plan_.element_bytes;
    if (range.offset % unit != 0 || range.bytes % unit != 0) fail(step, "cuts an element");
    if ((range.offset + range.bytes) / unit > symbols(range.buffer).size()) fail(step, "leaves its buffer");
    return {static_cast<std::ptrdiff_t>(range.offset / unit),
            static_cast<std::ptrdiff_t>((range.offset + range.bytes) / unit)};
  }

  Symbols sum(const Step& step, Symbols values, const Symbols& more) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i].element != more[i].element) fail(step, "adds different elements");
      for (std::size_t rank = 0; rank < values[i].ranks.size(); ++rank) {
        if (!more[i].ranks[rank]) continue;
        if (values[i].ranks[rank]) fail(step, str("adds the contribution of rank ", rank, " twice"));
        values[i].ranks[rank] = true;
      }
    }
    return values;
  }

  void write(const Step& step, const Symbols& values) {
    const auto [begin, end] = elements_of(step, step.range);
    if (static_cast<std::size_t>(end - begin) != values.size()) fail(step, "sizes differ");
    Symbols& buffer = step.range.buffer == Buffer::data ? data_ : scratch_;
    std::copy(values.begin(), values.end(), buffer.begin() + begin);
  }

  void run_local(const Step& step) {
    if (step.sources.empty()) fail(step, "has no source");
    Symbols values = read(step, step.sources.front());
    for (std::size_t i = 1; i < step.sources.size(); ++i) {
      if (step.sources[i].bytes != step.range.bytes) fail(step, "sizes differ");
      values = sum(step, std::move(values), read(step, step.sources[i]));
    }
    write(step, values);
  }

  std::size_t index_of(const Step& step) const {
    return static_cast<std::size_t>(&step - plan_.steps.data()) - first_;
  }

  // Collects the round's transfers, and checks that they can all run concurrently.
  void enter_round() {
    end_ = first_;
    while (end_ < plan_.steps.size() && plan_.steps[end_].round == plan_.steps[first_].round &&
           is_transfer(plan_.steps[end_])) {
      ++end_;
    }
    happened_.assign(end_ - first_, false);
    for (std::size_t i = first_; i < end_; ++i) {
      const Step& step = plan_.steps[i];
      if (step.round >= plan_.rounds || step.round < 0)
        fail(step, "is in a round that the plan does not have");
      if (step.peer >= plan_.world || step.peer == plan_.rank) fail(step, "has no such peer");
      if (is_send(step)) continue;
      for (std::size_t other = first_; other < end_; ++other) {
        if (other != i && overlap(step.range, plan_.steps[other].range)) {
          fail(step, str("touches the same bytes as ", describe(plan_.steps[other])));
        }
      }
    }
  }

  const Plan& plan_;
  Symbols data_;
  Symbols scratch_;
  std::size_t first_ = 0;  // steps [first_, end_) are the transfers of the round
  std::size_t end_ = 0;
  std::vector<bool> happened_;
};

// Delivers all messages whose both sides are ready; returns whether there were any.
inline bool hand_over(std::vector<SymbolicRank>& ranks) {
  bool moved = false;
  for (SymbolicRank& receiver : ranks) {
    for (const int peer : receiver.awaited()) {
      SymbolicRank& sender = ranks[static_cast<std::size_t>(peer)];
      const Step* taken = receiver.head(peer, false);
      const Step* given = sender.head(receiver.plan().rank, true);
      if (taken == nullptr || given == nullptr) continue;
      if (taken->round != given->round) receiver.fail(*taken, str("meets a send of round ", given->round));
      if (taken->range.bytes != given->range.bytes) {
        receiver.fail(*taken, str("meets a send of ", given->range.bytes, " bytes"));
      }
      receiver.receive(*taken, sender.read(*given, given->range));
      sender.sent(*given);
      moved = true;
    }
  }
  return moved;
}

// Proves that the plans of all ranks of one collective work together, by running them on symbols: every
// element is the set of ranks whose contributions it contains.
//
// The proof covers: every message meets its counterpart of the same size in the same round; no rank waits
// forever, even if a send completes only when its receiver has taken all of it (so no channel needs a
// buffer); within a round no transfer reads or writes bytes that another one writes; nothing is read before
// it is written; and every element of the result contains every rank's contribution exactly once. Throws
// Error that names the rank, the round and the step otherwise. Cost: elements x steps.
inline void check_plans(const std::vector<Plan>& plans) {
  std::vector<SymbolicRank> ranks;
  ranks.reserve(plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    if (plan.rank != static_cast<int>(rank) || plan.world != static_cast<int>(plans.size()) ||
        plan.bytes != plans[0].bytes || plan.rounds != plans[0].rounds) {
      throw Error(str("plan ", rank, " of ", plans.size(), " is not of this collective"));
    }
    ranks.emplace_back(plan);
  }
  bool moved = true;
  while (moved) {
    moved = hand_over(ranks);
    for (SymbolicRank& rank : ranks) {
      while (rank.advance()) moved = true;
    }
  }
  for (const SymbolicRank& rank : ranks) {
    if (!rank.done())
      throw Error(str(rank.where(), " waits for ever, for ranks ", join(rank.awaited(), ", ")));
  }
  for (const SymbolicRank& rank : ranks) rank.check_result();
}

}  // namespace rondo::collective::plan_check
