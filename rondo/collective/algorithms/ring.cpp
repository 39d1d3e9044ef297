// Ranks form a ring and send pieces to their neighbour only: the minimum number of bytes, 2 (p - 1) / p of
// the data in each direction, in 2 (p - 1) rounds. Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009. broadcast and reduce run along the ring as a pipelined
// chain.
#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

// Returns the ring, cut before the root: each rank's parent is the rank before it.
Tree chain(int world, int root) {
  std::vector<int> parents(static_cast<std::size_t>(world), -1);
  for (int rank = 0; rank < world; ++rank) {
    if (rank != root) parents[static_cast<std::size_t>(rank)] = (rank + world - 1) % world;
  }
  return make_tree(std::move(parents));
}

Pipeline pipeline_of(const ScheduleRequest& request) {
  return {segments_of(request.bytes.count, request.segment), request.world - 1, 1};
}

Schedule schedule_ring(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "ring");
  const std::vector<int> group = all_ranks(request.world);
  const PieceOf part = [&](int index) { return part_of(request, index); };
  switch (request.operation) {
    case OperationKind::all_reduce:
      ring_reduce_scatter(builder, 0, group, part);
      ring_all_gather(builder, request.world - 1, group, part);
      return builder.finish(2 * (request.world - 1));
    case OperationKind::reduce_scatter:
      ring_reduce_scatter(builder, 0, group, part);
      return builder.finish(request.world - 1);
    case OperationKind::all_gather:
      ring_all_gather(builder, 0, group, part);
      return builder.finish(request.world - 1);
    case OperationKind::broadcast:
      tree_broadcast(builder, 0, chain(request.world, request.root), pipeline_of(request), builder.data());
      return builder.finish(pipeline_of(request).rounds());
    default:
      tree_reduce(builder, 0, chain(request.world, request.root), pipeline_of(request), builder.data());
      return builder.finish(pipeline_of(request).rounds());
  }
}

Cost cost_of_ring(const ScheduleRequest& request) {
  const int others = request.world - 1;
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t once =
      all / static_cast<std::uint64_t>(request.world) * static_cast<std::uint64_t>(others);
  const bool first = request.rank == request.root;
  const bool last = (request.rank + 1) % request.world == request.root;
  const int chain_rounds = others == 0 ? 0 : others + segments_of(all, request.segment) - 1;
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {2 * others, 2 * once, 2 * once, 0};
    case OperationKind::broadcast:
      return {chain_rounds, last ? 0 : all, first ? 0 : all, 0};
    case OperationKind::reduce:
      return {chain_rounds, first ? 0 : all, last ? 0 : all, 0};
    default:
      return {others, once, once, 0};
  }
}

}  // namespace

Algorithm ring() {
  return {"ring",
          "pieces go round a ring of neighbours",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_ring,
          cost_of_ring};
}

}  // namespace rondo::collective
