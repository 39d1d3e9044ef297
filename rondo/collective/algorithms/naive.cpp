// One rank does all the work: all ranks send it their data, and it adds and sends the result to all. The
// baseline of the other algorithms; the bytes at rank 0 grow with the world size.
#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

Schedule schedule_naive(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "naive");
  const PieceOf part = [&](int rank) { return part_of(request, rank); };
  switch (request.operation) {
    case OperationKind::all_reduce:
      gather_and_add(builder, 0, 0, builder.data());
      send_to_all(builder, 1, 0, builder.data());
      break;
    case OperationKind::reduce_scatter:
      gather_and_add(builder, 0, 0, builder.data());
      scatter_pieces(builder, 1, 0, part);
      break;
    case OperationKind::all_gather:
      gather_pieces(builder, 0, 0, part);
      send_to_all(builder, 1, 0, builder.data());
      break;
    default:
      star(builder);
  }
  const bool one_way =
      request.operation == OperationKind::broadcast || request.operation == OperationKind::reduce;
  return builder.finish(request.world == 1 ? 0 : one_way ? 1 : 2);
}

Cost cost_of_naive(const ScheduleRequest& request) {
  const auto others = static_cast<std::uint64_t>(request.world - 1);
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t part = all / static_cast<std::uint64_t>(request.world);
  if (others == 0) return {};
  switch (request.operation) {
    case OperationKind::all_reduce:
      if (request.rank == 0) return {2, others * all, others * all, others * all};
      return {2, all, all, 0};
    case OperationKind::reduce_scatter:
      if (request.rank == 0) return {2, others * part, others * all, others * all};
      return {2, all, part, 0};
    case OperationKind::all_gather:
      if (request.rank == 0) return {2, others * all, others * part, 0};
      return {2, part, all, 0};
    default:
      return star_cost(request);
  }
}

}  // namespace

Algorithm naive() {
  return {"naive",
          "gather everything at one rank, add there, send the result to all",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_naive,
          cost_of_naive,
          /*adds_in_rank_order=*/true};
}

}  // namespace rondo::collective
