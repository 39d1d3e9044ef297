// Recursive vector halving and doubling: partners at distance p/2, p/4, ... exchange half of the data that
// remains to be reduced, then gather in the opposite order. The minimum number of bytes in 2 log2 p rounds.
// Rabenseifner, "Optimization of Collective Reduction Operations", 2004; broadcast by scatter and all_gather
// after van de Geijn. If p is not a power of two, the first ranks form pairs: one of a pair works for both,
// which costs two more rounds of up to the whole data.
#include <functional>

#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

// The `size` ranks, a power of two, that take part in halving. Among the first 2 * pairs (virtual) ranks
// these are the even ones, which also represent the odd rank after them.
class Core {
 public:
  Core(const ScheduleRequest& request, int root)
      : world_(request.world), root_(root), levels_(log2_floor(request.world)) {
    size_ = 1 << levels_;
    pairs_ = world_ - size_;
    virtual_ = (request.rank - root_ + world_) % world_;
    folded_ = virtual_ < 2 * pairs_ && virtual_ % 2 == 1;
    index_ = virtual_ < 2 * pairs_ ? virtual_ / 2 : virtual_ - pairs_;
  }
  int levels() const { return levels_; }
  int size() const { return size_; }
  // Rounds of folding in each direction: 1 if there are pairs.
  int fold_rounds() const { return pairs_ > 0 ? 1 : 0; }
  bool folded() const { return folded_; }
  bool paired() const { return virtual_ < 2 * pairs_; }
  // Index of this rank, or of the core rank that represents it.
  int index() const { return index_; }
  int rank_of(int index) const { return actual(first_rank(index)); }
  // The other rank of the pair.
  int partner() const { return actual(virtual_ ^ 1); }
  // Number of virtual ranks that the core ranks before `index` represent.
  int first_rank(int index) const { return index < pairs_ ? 2 * index : index + pairs_; }

 private:
  int actual(int v) const { return (v + root_) % world_; }
  int world_;
  int root_;
  int levels_;
  int size_ = 1;
  int pairs_ = 0;
  int virtual_ = 0;
  bool folded_ = false;
  int index_ = 0;
};

// Returns the data that core ranks [begin, end) own together.
using BlocksOf = std::function<Range(int begin, int end)>;

// Reduces; ends with the sum of its own block on every core rank.
void halve(ScheduleBuilder& builder, int round, const Core& core, const BlocksOf& blocks) {
  if (core.folded()) return;
  for (int distance = core.size() / 2; distance > 0; distance /= 2, ++round) {
    const int mine = core.index() / distance * distance;
    const int theirs = mine ^ distance;
    const int partner = core.rank_of(core.index() ^ distance);
    builder.send(round, partner, blocks(theirs, theirs + distance));
    builder.recv_reduce(round, partner, blocks(mine, mine + distance));
  }
}

// Gathers; starts with its own block on every core rank, and ends with all data.
void double_up(ScheduleBuilder& builder, int round, const Core& core, const BlocksOf& blocks) {
  if (core.folded()) return;
  for (int distance = 1; distance < core.size(); distance *= 2, ++round) {
    const int mine = core.index() / distance * distance;
    const int theirs = mine ^ distance;
    const int partner = core.rank_of(core.index() ^ distance);
    builder.send(round, partner, blocks(mine, mine + distance));
    builder.recv(round, partner, blocks(theirs, theirs + distance));
  }
}

// Scatters from core rank 0 a block to every core rank; half of the rest goes to the middle of the range.
void scatter(ScheduleBuilder& builder, int round, const Core& core, const BlocksOf& blocks) {
  if (core.folded()) return;
  for (int distance = core.size() / 2; distance > 0; distance /= 2, ++round) {
    const int other = core.index() ^ distance;
    if (core.index() % (2 * distance) == 0)
      builder.send(round, core.rank_of(other), blocks(other, other + distance));
    if (core.index() % (2 * distance) == distance)
      builder.recv(round, core.rank_of(other), blocks(core.index(), core.index() + distance));
  }
}

void gather(ScheduleBuilder& builder, int round, const Core& core, const BlocksOf& blocks) {
  if (core.folded()) return;
  for (int distance = 1; distance < core.size(); distance *= 2, ++round) {
    const int other = core.index() ^ distance;
    if (core.index() % (2 * distance) == distance)
      builder.send(round, core.rank_of(other), blocks(core.index(), core.index() + distance));
    if (core.index() % (2 * distance) == 0)
      builder.recv(round, core.rank_of(other), blocks(other, other + distance));
  }
}

// Sends the folded rank's data to its partner; unfold() returns `range` to it.
void fold(ScheduleBuilder& builder, int round, const Core& core) {
  if (!core.paired()) return;
  if (core.folded())
    builder.send(round, core.partner(), builder.data());
  else
    builder.recv_reduce(round, core.partner(), builder.data());
}

void unfold(ScheduleBuilder& builder, int round, const Core& core, const Range& range) {
  if (!core.paired()) return;
  if (core.folded())
    builder.recv(round, core.partner(), range);
  else
    builder.send(round, core.partner(), range);
}

Schedule schedule_halving_doubling(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "halving_doubling");
  const Core core(request, is_rooted(request) ? request.root : 0);
  const BlocksOf even = [&](int begin, int end) { return builder.pieces(core.size(), begin, end); };
  // If parts belong to ranks, a core rank owns those of all ranks that it represents.
  const BlocksOf by_rank = [&](int begin, int end) {
    return builder.pieces(request.world, core.first_rank(begin), core.first_rank(end));
  };
  const int extra = core.fold_rounds();
  // The part of the odd rank of this pair.
  const Range folded_part =
      core.paired() ? part_of(request, core.folded() ? request.rank : core.partner()) : Range{};
  switch (request.operation) {
    case OperationKind::all_reduce:
      fold(builder, 0, core);
      halve(builder, extra, core, even);
      double_up(builder, extra + core.levels(), core, even);
      unfold(builder, extra + 2 * core.levels(), core, builder.data());
      return builder.finish(2 * core.levels() + 2 * extra);
    case OperationKind::reduce_scatter:
      fold(builder, 0, core);
      halve(builder, extra, core, by_rank);
      unfold(builder, extra + core.levels(), core, folded_part);
      return builder.finish(core.levels() + 2 * extra);
    case OperationKind::all_gather:
      if (core.paired() && core.folded()) builder.send(0, core.partner(), folded_part);
      if (core.paired() && !core.folded()) builder.recv(0, core.partner(), folded_part);
      double_up(builder, extra, core, by_rank);
      unfold(builder, extra + core.levels(), core, builder.data());
      return builder.finish(core.levels() + 2 * extra);
    case OperationKind::broadcast:
      scatter(builder, 0, core, even);
      double_up(builder, core.levels(), core, even);
      unfold(builder, 2 * core.levels(), core, builder.data());
      return builder.finish(2 * core.levels() + extra);
    default:
      fold(builder, 0, core);
      halve(builder, extra, core, even);
      gather(builder, extra + core.levels(), core, even);
      return builder.finish(2 * core.levels() + extra);
  }
}

Cost cost_of_halving_doubling(const ScheduleRequest& request) {
  const Core core(request, is_rooted(request) ? request.root : 0);
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t part = all / static_cast<std::uint64_t>(request.world);
  const std::uint64_t block = all / static_cast<std::uint64_t>(core.size());
  const int extra = core.fold_rounds();
  const int levels = core.levels();
  const int both_ways = 2 * levels + (is_rooted(request) ? extra : 2 * extra);
  const int one_way = levels + 2 * extra;
  if (core.folded()) {
    switch (request.operation) {
      case OperationKind::all_reduce:
        return {both_ways, all, all, 0};
      case OperationKind::reduce_scatter:
        return {one_way, all, part, 0};
      case OperationKind::all_gather:
        return {one_way, part, all, 0};
      case OperationKind::broadcast:
        return {both_ways, 0, all, 0};
      default:
        return {both_ways, all, 0, 0};
    }
  }
  const std::uint64_t once = all - block;  // (q - 1) / q of the data
  const std::uint64_t pair = core.paired() ? all : 0;
  // Blocks by rank: sizes of the groups of 1, 2, 4, ... core ranks around this one, without the last.
  std::uint64_t groups = 0;
  for (int distance = 1; distance < core.size(); distance *= 2) {
    const int begin = core.index() / distance * distance;
    groups += static_cast<std::uint64_t>(core.first_rank(begin + distance) - core.first_rank(begin)) * part;
  }
  const std::uint64_t pair_part = core.paired() ? part : 0;
  const std::uint64_t without_own = all - part - pair_part;
  // Blocks below this core rank in the binomial tree from core rank 0.
  const int lowest_bit = core.index() == 0 ? core.size() : core.index() & -core.index();
  const std::uint64_t below = static_cast<std::uint64_t>(lowest_bit - 1) * block;
  const std::uint64_t above = core.index() == 0 ? 0 : static_cast<std::uint64_t>(lowest_bit) * block;
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {both_ways, 2 * once + pair, 2 * once + pair, 0};
    case OperationKind::reduce_scatter:
      return {one_way, without_own + pair_part, groups + pair, 0};
    case OperationKind::all_gather:
      return {one_way, groups + pair, without_own + pair_part, 0};
    case OperationKind::broadcast:
      return {both_ways, below + once + pair, above + once, 0};
    default:
      return {both_ways, once + above, pair + once + below, 0};
  }
}

}  // namespace

Algorithm halving_doubling() {
  return {"halving_doubling",
          "partners exchange halves, quarters, ..., then gather back",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_halving_doubling,
          cost_of_halving_doubling};
}

}  // namespace rondo::collective
