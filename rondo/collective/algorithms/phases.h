#pragma once

#include <functional>
#include <vector>

#include "rondo/collective/plan.h"

// What algorithms are put together from. Each function adds this rank's steps of one phase, beginning with
// round `round`, and does nothing on ranks that take no part.
namespace rondo::collective {

using Ranges = std::vector<Range>;
// The piece that a member of a group, by its index there, ends up with or starts with.
using PieceOf = std::function<Range(int index)>;

std::vector<int> all_ranks(int world);
// Position of `rank` in `group`; -1 when it is not there.
int index_in(const std::vector<int>& group, int rank);
// Number of pieces in which pipelined algorithms cut `bytes`; at least 1.
int segments_of(std::uint64_t bytes, Bytes segment);
// floor and ceiling of the logarithm to base 2, of numbers from 1.
int log2_floor(int number);
int log2_ceil(int number);

// Everybody sends its `range` to `root`, which adds them in the order of ranks, rounding once. One round.
void gather_and_add(PlanBuilder& builder, int round, int root, const Range& range);
// `root` sends `range` to everybody. One round.
void send_to_all(PlanBuilder& builder, int round, int root, const Range& range);
// broadcast or reduce of all data, as the request says, between the root and everybody. One round; and its
// cost.
void star(PlanBuilder& builder);
Cost star_cost(const PlanRequest& request);
// `root` sends everybody its piece; everybody sends its piece to `root`. One round.
void scatter_pieces(PlanBuilder& builder, int round, int root, const PieceOf& piece);
void gather_pieces(PlanBuilder& builder, int round, int root, const PieceOf& piece);
// Everybody gets its piece from all others and adds them in the order of ranks, rounding once. One round.
void exchange_and_add(PlanBuilder& builder, int round, const PieceOf& piece);
// Everybody sends its piece to all others. One round.
void exchange_pieces(PlanBuilder& builder, int round, const PieceOf& piece);

// Around the ring that `group` forms, one piece a round to the next rank; |group| - 1 rounds. After the first
// member i holds the sum of piece i; the second starts from there.
void ring_reduce_scatter(PlanBuilder& builder, int round, const std::vector<int>& group,
                         const PieceOf& piece);
void ring_all_gather(PlanBuilder& builder, int round, const std::vector<int>& group, const PieceOf& piece);

// A tree of ranks along which data flows in segments, one behind the other.
struct Tree {
  std::vector<int> parent;  // by rank; -1 for the root
  std::vector<int> depth;   // by rank; 0 for the root
  std::vector<int> slot;    // by rank: which child of its parent it is
  int height = 0;           // largest depth
  int fanout = 0;           // most children of a rank
};
Tree make_tree(std::vector<int> parents);

// How a pipelined phase goes: one segment moves one level in `stride` rounds, in which a parent serves one
// child after the other (stride >= fanout), so that the order of additions is fixed.
struct Pipeline {
  int segments = 1;
  int height = 0;
  int stride = 1;
  int rounds() const { return height == 0 ? 0 : stride * (height + segments - 1); }
};
// Sums flow from the leaves to the root; copies flow from the root to the leaves.
void tree_reduce(PlanBuilder& builder, int round, const Tree& tree, const Pipeline& pipeline,
                 const Range& range);
void tree_broadcast(PlanBuilder& builder, int round, const Tree& tree, const Pipeline& pipeline,
                    const Range& range);

}  // namespace rondo::collective
