#pragma once

#include <functional>
#include <vector>

#include "rondo/collective/schedule.h"

// Building blocks of algorithms. Each function adds this rank's steps of one phase, beginning with round
// `round`, and does nothing on ranks that take no part.
namespace rondo::collective {

using Ranges = std::vector<Range>;
// Returns the piece that a member of a group, given by its index, ends or starts with.
using PieceOf = std::function<Range(int index)>;

std::vector<int> all_ranks(int world);
// Returns the position of `rank` in `group`, or -1.
int index_in(const std::vector<int>& group, int rank);
// Returns the number of pieces into which pipelined algorithms cut `bytes`; at least 1.
int segments_of(std::uint64_t bytes, Bytes segment);
// Return floor and ceiling of the logarithm to base 2 of a number from 1.
int log2_floor(int number);
int log2_ceil(int number);

// Sends each rank's `range` to `root`, which adds them in the order of ranks, rounding once. One round.
void gather_and_add(ScheduleBuilder& builder, int round, int root, const Range& range);
// Sends `range` from `root` to all ranks. One round.
void send_to_all(ScheduleBuilder& builder, int round, int root, const Range& range);
// Broadcasts or reduces all data, as requested, directly between the root and all ranks. One round.
// star_cost() returns its cost.
void star(ScheduleBuilder& builder);
Cost star_cost(const ScheduleRequest& request);
// Sends each rank its piece from `root`; gather_pieces() sends each rank's piece to `root`. One round.
void scatter_pieces(ScheduleBuilder& builder, int round, int root, const PieceOf& piece);
void gather_pieces(ScheduleBuilder& builder, int round, int root, const PieceOf& piece);
// Sends each rank its piece from all others; it adds them in the order of ranks, rounding once. One round.
void exchange_and_add(ScheduleBuilder& builder, int round, const PieceOf& piece);
// Sends each rank's piece to all others. One round.
void exchange_pieces(ScheduleBuilder& builder, int round, const PieceOf& piece);

// Send one piece per round to the next rank of the ring that `group` forms; |group| - 1 rounds. After the
// reduce_scatter member i holds the sum of piece i; the all_gather starts from there.
void ring_reduce_scatter(ScheduleBuilder& builder, int round, const std::vector<int>& group,
                         const PieceOf& piece);
void ring_all_gather(ScheduleBuilder& builder, int round, const std::vector<int>& group,
                     const PieceOf& piece);

// A tree of ranks for data in pipelined segments.
struct Tree {
  std::vector<int> parent;  // by rank; -1 for the root
  std::vector<int> depth;   // by rank; 0 for the root
  std::vector<int> slot;    // by rank: index among its parent's children
  int height = 0;           // largest depth
  int fanout = 0;           // largest number of children of any rank
};
Tree make_tree(std::vector<int> parents);

// Timing of a pipelined phase: one segment moves one level in `stride` rounds, in which a parent serves one
// child after the other (stride >= fanout), so that the order of additions is fixed.
struct Pipeline {
  int segments = 1;
  int height = 0;
  int stride = 1;
  int rounds() const { return height == 0 ? 0 : stride * (height + segments - 1); }
};
// Send sums from the leaves to the root, and copies from the root to the leaves.
void tree_reduce(ScheduleBuilder& builder, int round, const Tree& tree, const Pipeline& pipeline,
                 const Range& range);
void tree_broadcast(ScheduleBuilder& builder, int round, const Tree& tree, const Pipeline& pipeline,
                    const Range& range);

}  // namespace rondo::collective
