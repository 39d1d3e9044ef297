#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/schedule.h"

namespace rondo::collective::schedule_check {

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

// One rank during the run of its schedule.
class SymbolicRank {
 public:
  explicit SymbolicRank(const Schedule& schedule) : schedule_(schedule) {
    const std::uint64_t elements = schedule.bytes.count / schedule.element_bytes;
    data_.resize(elements);
    scratch_.resize(schedule.scratch.count / schedule.element_bytes);
    for (std::uint64_t i = 0; i < elements; ++i) {
      data_[i].element = static_cast<std::int64_t>(i);
      if (contributes(i)) data_[i].ranks = single(schedule.rank);
    }
    enter_round();
  }

  bool done() const { return first_ == schedule_.steps.size(); }
  const Schedule& schedule() const { return schedule_; }

  // Returns the first pending transfer of this round with `peer` in the given direction.
  const Step* head(int peer, bool sending) const {
    for (std::size_t i = first_; i < end_; ++i) {
      const Step& step = schedule_.steps[i];
      if (!happened_[i - first_] && step.peer == peer && is_send(step) == sending) return &step;
    }
    return nullptr;
  }
  // Returns the peers of this round's pending receives.
  std::vector<int> awaited() const {
    std::vector<int> peers;
    for (std::size_t i = first_; i < end_; ++i) {
      const Step& step = schedule_.steps[i];
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
    for (; i < schedule_.steps.size() && schedule_.steps[i].round == schedule_.steps[first_].round; ++i) {
      run_local(schedule_.steps[i]);
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
    return str(schedule_.algorithm, " ", rondo::name(schedule_.operation), " of ", schedule_.world,
               " ranks, rank ", schedule_.rank);
  }

  [[noreturn]] void fail(const Step& step, const std::string& what) const {
    throw Error(str(where(), ", round ", step.round, ": ", describe(step), ": ", what));
  }

 private:
  std::vector<bool> single(int rank) const {
    std::vector<bool> ranks(static_cast<std::size_t>(schedule_.world), false);
    ranks[static_cast<std::size_t>(rank)] = true;
    return ranks;
  }

  // Returns the owner of an element if parts belong to ranks.
  int owner(std::uint64_t element) const {
    ScheduleRequest request;
    request.world = schedule_.world;
    request.bytes = schedule_.bytes;
    request.element_bytes = schedule_.element_bytes;
    for (int rank = 0; rank < schedule_.world; ++rank) {
      const Range part = part_of(request, rank);
      if (element * schedule_.element_bytes < part.offset + part.bytes) return rank;
    }
    return -1;
  }
  bool contributes(std::uint64_t element) const {
    if (schedule_.operation == OperationKind::broadcast) return schedule_.rank == schedule_.root;
    return schedule_.operation != OperationKind::all_gather || owner(element) == schedule_.rank;
  }
  bool belongs_to_result(std::uint64_t element) const {
    if (schedule_.operation == OperationKind::reduce) return schedule_.rank == schedule_.root;
    return schedule_.operation != OperationKind::reduce_scatter || owner(element) == schedule_.rank;
  }
  std::vector<bool> expected(std::uint64_t element) const {
    if (schedule_.operation == OperationKind::broadcast) return single(schedule_.root);
    if (schedule_.operation == OperationKind::all_gather) return single(owner(element));
    return std::vector<bool>(static_cast<std::size_t>(schedule_.world), true);
  }

  const Symbols& symbols(Buffer buffer) const { return buffer == Buffer::data ? data_ : scratch_; }

  std::pair<std::ptrdiff_t, std::ptrdiff_t> elements_of(const Step& step, const Range& range) const {
    const std::size_t unit = schedule_.element_bytes;
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
    return static_cast<std::size_t>(&step - schedule_.steps.data()) - first_;
  }

  // Collects the round's transfers, and checks that they can all run concurrently.
  void enter_round() {
    end_ = first_;
    while (end_ < schedule_.steps.size() && schedule_.steps[end_].round == schedule_.steps[first_].round &&
           is_transfer(schedule_.steps[end_])) {
      ++end_;
    }
    happened_.assign(end_ - first_, false);
    for (std::size_t i = first_; i < end_; ++i) {
      const Step& step = schedule_.steps[i];
      if (step.round >= schedule_.rounds || step.round < 0)
        fail(step, "is in a round that the schedule does not have");
      if (step.peer >= schedule_.world || step.peer == schedule_.rank) fail(step, "has no such peer");
      if (is_send(step)) continue;
      for (std::size_t other = first_; other < end_; ++other) {
        if (other != i && overlap(step.range, schedule_.steps[other].range)) {
          fail(step, str("touches the same bytes as ", describe(schedule_.steps[other])));
        }
      }
    }
  }

  const Schedule& schedule_;
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
      const Step* given = sender.head(receiver.schedule().rank, true);
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

// Proves that the schedules of all ranks of one collective work together, by running them on symbols: every
// element is the set of ranks whose contributions it contains.
//
// The proof covers: every message meets its counterpart of the same size in the same round; no rank waits
// forever, even if a send completes only when its receiver has taken all of it (so no channel needs a
// buffer); within a round no transfer reads or writes bytes that another one writes; nothing is read before
// it is written; and every element of the result contains every rank's contribution exactly once. Throws
// Error that names the rank, the round and the step otherwise. Cost: elements x steps.
inline void check_schedules(const std::vector<Schedule>& schedules) {
  std::vector<SymbolicRank> ranks;
  ranks.reserve(schedules.size());
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const Schedule& schedule = schedules[rank];
    if (schedule.rank != static_cast<int>(rank) || schedule.world != static_cast<int>(schedules.size()) ||
        schedule.bytes != schedules[0].bytes || schedule.rounds != schedules[0].rounds) {
      throw Error(str("schedule ", rank, " of ", schedules.size(), " is not of this collective"));
    }
    ranks.emplace_back(schedule);
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

}  // namespace rondo::collective::schedule_check
