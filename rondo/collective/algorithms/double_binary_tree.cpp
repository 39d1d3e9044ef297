// Two binary trees, each for half of the data in segments. A leaf of one tree is an inner rank of the other,
// so that every link is busy. Logarithmic latency at nearly the bandwidth of the ring. Sanders, Speck and
// Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009.
#include <algorithm>

#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

// Sets the parents in the in-order tree on positions [begin, end): even positions are leaves, odd ones inner.
void link(std::vector<int>& parents, int begin, int end, int parent) {
  if (begin == end) return;
  const int root = begin + (1 << log2_floor(end - begin)) - 1;
  parents[static_cast<std::size_t>(root)] = parent;
  link(parents, begin, root, root);
  link(parents, root + 1, end, root);
}

// The root rank is above both trees, which span the other ranks; position i of them is rank root + 1 + i. The
// second tree is the first with positions mirrored (even number of ranks) or shifted by one (odd), which
// swaps leaves and inner ranks.
Tree tree_of(int which, int world, int root) {
  const int others = world - 1;
  std::vector<int> in_order(static_cast<std::size_t>(others), -1);
  link(in_order, 0, others, -1);
  const auto rank_at = [&](int position) {
    if (which == 1) position = others % 2 == 0 ? others - 1 - position : (position + 1) % others;
    return (root + 1 + position) % world;
  };
  std::vector<int> parents(static_cast<std::size_t>(world), -1);
  for (int position = 0; position < others; ++position) {
    const int above = in_order[static_cast<std::size_t>(position)];
    parents[static_cast<std::size_t>(rank_at(position))] = above < 0 ? root : rank_at(above);
  }
  return make_tree(std::move(parents));
}

int root_of(const ScheduleRequest& request) {
  return request.operation == OperationKind::all_reduce ? 0 : request.root;
}

Schedule schedule_double_binary_tree(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "double_binary_tree");
  int rounds = 0;
  for (int which = 0; which < 2; ++which) {
    const Tree tree = tree_of(which, request.world, root_of(request));
    const Pipeline pipeline{segments_of(builder.piece(2, 0).bytes, request.segment), tree.height,
                            std::max(tree.fanout, 1)};
    const Range half = builder.piece(2, which);
    if (request.operation == OperationKind::broadcast) {
      tree_broadcast(builder, 0, tree, pipeline, half);
      rounds = pipeline.rounds();
    } else if (request.operation == OperationKind::reduce) {
      tree_reduce(builder, 0, tree, pipeline, half);
      rounds = pipeline.rounds();
    } else {
      // A segment starts its broadcast at the root while later ones are still being reduced.
      const int turn = pipeline.stride * pipeline.height;
      tree_reduce(builder, 0, tree, pipeline, half);
      tree_broadcast(builder, turn, tree, pipeline, half);
      rounds = turn + pipeline.rounds();
    }
  }
  return builder.finish(rounds);
}

Cost cost_of_double_binary_tree(const ScheduleRequest& request) {
  if (request.world == 1) return {};
  const int others = request.world - 1;
  const int root = root_of(request);
  const std::uint64_t all = request.bytes.count;
  const int stride = others > 2 ? 2 : 1;
  const int height = log2_floor(others) + 1;
  const int segments = segments_of(all / 2, request.segment);
  std::uint64_t children = 0;  // in both trees
  for (int which = 0; which < 2; ++which) {
    const Tree tree = tree_of(which, request.world, root);
    children += static_cast<std::uint64_t>(std::count(tree.parent.begin(), tree.parent.end(), request.rank));
  }
  const std::uint64_t below = children * (all / 2);
  const std::uint64_t above = request.rank == root ? 0 : all;
  const int one_way = stride * (height + segments - 1);
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {stride * height + one_way, above + below, above + below, 0};
    case OperationKind::broadcast:
      return {one_way, below, above, 0};
    default:
      return {one_way, above, below, 0};
  }
}

}  // namespace

Algorithm double_binary_tree() {
  return {"double_binary_tree",
          "two pipelined binary trees carry half of the data each",
          {OperationKind::all_reduce, OperationKind::broadcast, OperationKind::reduce},
          schedule_double_binary_tree,
          cost_of_double_binary_tree};
}

}  // namespace rondo::collective
