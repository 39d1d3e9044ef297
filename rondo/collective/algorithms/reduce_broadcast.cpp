// Reduces to one rank along a binomial tree and broadcasts the result back: 2 ceil(log2 p) rounds of whole
// buffers. For small data on links of high latency. Thakur, Rabenseifner and Gropp, "Optimization of
// Collective Communication Operations in MPICH", 2005, section 3.
#include <algorithm>

#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

// The tree on virtual ranks, the root being 0: the children of v are v + 2^k for all 2^k below v's lowest set
// bit (any 2^k for the root). The subtree of v is the virtual ranks [v, v + subtree).
class BinomialTree {
 public:
  BinomialTree(int world, int root) : world_(world), root_(root), levels_(log2_ceil(world)) {}

  int levels() const { return levels_; }
  int actual(int v) const { return (v + root_) % world_; }
  int of_rank(int rank) const { return (rank - root_ + world_) % world_; }
  // Number of k for which v + 2^k may be a child.
  int child_levels(int v) const {
    if (v == 0) return levels_;
    int zeros = 0;
    while ((v >> zeros & 1) == 0) ++zeros;
    return zeros;
  }
  int parent(int v) const { return v & (v - 1); }
  int children(int v) const {
    int count = 0;
    for (int k = 0; k < child_levels(v); ++k) count += v + (1 << k) < world_ ? 1 : 0;
    return count;
  }
  int subtree(int v) const { return std::min(1 << child_levels(v), world_ - v); }

 private:
  int world_;
  int root_;
  int levels_;
};

// Calls use(round, child, parent) for every edge at this rank, as virtual ranks. Round k of `upward` uses the
// edges of length 2^k; the other direction uses them in the opposite order.
template <class Use>
void for_own_edges(const BinomialTree& tree, int rank, int world, bool upward, Use use) {
  const int v = tree.of_rank(rank);
  for (int k = 0; k < tree.levels(); ++k) {
    const int round = upward ? k : tree.levels() - 1 - k;
    if (k < tree.child_levels(v) && v + (1 << k) < world) use(round, v + (1 << k), v);
    if (v != 0 && k == tree.child_levels(v)) use(round, v, tree.parent(v));
  }
}

void reduce_up(ScheduleBuilder& builder, int round, const BinomialTree& tree) {
  for_own_edges(tree, builder.rank(), builder.world(), true, [&](int when, int child, int parent) {
    if (tree.actual(child) == builder.rank())
      builder.send(round + when, tree.actual(parent), builder.data());
    else
      builder.recv_reduce(round + when, tree.actual(child), builder.data());
  });
}

void broadcast_down(ScheduleBuilder& builder, int round, const BinomialTree& tree) {
  for_own_edges(tree, builder.rank(), builder.world(), false, [&](int when, int child, int parent) {
    if (tree.actual(child) == builder.rank())
      builder.recv(round + when, tree.actual(parent), builder.data());
    else
      builder.send(round + when, tree.actual(child), builder.data());
  });
}

// Parts of the child's subtree; the root is rank 0, so virtual ranks are ranks.
Range subtree_parts(const ScheduleBuilder& builder, const BinomialTree& tree, int v) {
  return builder.pieces(builder.world(), v, v + tree.subtree(v));
}

void scatter_down(ScheduleBuilder& builder, int round, const BinomialTree& tree) {
  for_own_edges(tree, builder.rank(), builder.world(), false, [&](int when, int child, int parent) {
    const Range parts = subtree_parts(builder, tree, child);
    if (child == builder.rank())
      builder.recv(round + when, parent, parts);
    else
      builder.send(round + when, child, parts);
  });
}

void gather_up(ScheduleBuilder& builder, int round, const BinomialTree& tree) {
  for_own_edges(tree, builder.rank(), builder.world(), true, [&](int when, int child, int parent) {
    const Range parts = subtree_parts(builder, tree, child);
    if (child == builder.rank())
      builder.send(round + when, parent, parts);
    else
      builder.recv(round + when, child, parts);
  });
}

Schedule schedule_reduce_broadcast(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "reduce_broadcast");
  const BinomialTree tree(request.world, is_rooted(request) ? request.root : 0);
  switch (request.operation) {
    case OperationKind::all_reduce:
      reduce_up(builder, 0, tree);
      broadcast_down(builder, tree.levels(), tree);
      break;
    case OperationKind::reduce_scatter:
      reduce_up(builder, 0, tree);
      scatter_down(builder, tree.levels(), tree);
      break;
    case OperationKind::all_gather:
      gather_up(builder, 0, tree);
      broadcast_down(builder, tree.levels(), tree);
      break;
    case OperationKind::broadcast:
      broadcast_down(builder, 0, tree);
      break;
    default:
      reduce_up(builder, 0, tree);
  }
  return builder.finish(is_rooted(request) ? tree.levels() : 2 * tree.levels());
}

Cost cost_of_reduce_broadcast(const ScheduleRequest& request) {
  const BinomialTree tree(request.world, is_rooted(request) ? request.root : 0);
  const int v = tree.of_rank(request.rank);
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t part = all / static_cast<std::uint64_t>(request.world);
  const int levels = tree.levels();
  // Whole buffers, and parts of the subtree, to and from the parent and the children.
  const std::uint64_t parent = v == 0 ? 0 : all;
  const std::uint64_t children = static_cast<std::uint64_t>(tree.children(v)) * all;
  const auto subtree = static_cast<std::uint64_t>(tree.subtree(v));
  const std::uint64_t parent_parts = v == 0 ? 0 : subtree * part;
  const std::uint64_t children_parts = (subtree - 1) * part;
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {2 * levels, parent + children, parent + children, 0};
    case OperationKind::reduce_scatter:
      return {2 * levels, parent + children_parts, children + parent_parts, 0};
    case OperationKind::all_gather:
      return {2 * levels, parent_parts + children, children_parts + parent, 0};
    case OperationKind::broadcast:
      return {levels, children, parent, 0};
    default:
      return {levels, parent, children, 0};
  }
}

}  // namespace

Algorithm reduce_broadcast() {
  return {"reduce_broadcast",
          "reduce to one rank along a binomial tree, broadcast back along it",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_reduce_broadcast,
          cost_of_reduce_broadcast};
}

}  // namespace rondo::collective
