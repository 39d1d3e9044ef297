// Every rank owns a part: all ranks send it their values of that part at once, and it adds them and sends the
// sum to all. Two rounds and the minimum number of bytes, but p - 1 messages per rank in each round.
#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

Schedule schedule_all_to_all(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "all_to_all");
  const PieceOf part = [&](int rank) { return part_of(request, rank); };
  int rounds = 2;
  switch (request.operation) {
    case OperationKind::all_reduce:
      exchange_and_add(builder, 0, part);
      exchange_pieces(builder, 1, part);
      break;
    case OperationKind::reduce_scatter:
      exchange_and_add(builder, 0, part);
      rounds = 1;
      break;
    case OperationKind::all_gather:
      exchange_pieces(builder, 0, part);
      rounds = 1;
      break;
    case OperationKind::broadcast:
      // Scatter, then all_gather; the root receives nothing.
      scatter_pieces(builder, 0, request.root, part);
      for (int rank = 0; rank < request.world; ++rank) {
        if (rank == request.rank) continue;
        if (rank != request.root) builder.send(1, rank, part(request.rank));
        if (request.rank != request.root) builder.recv(1, rank, part(rank));
      }
      break;
    default:
      exchange_and_add(builder, 0, part);
      gather_pieces(builder, 1, request.root, part);
  }
  return builder.finish(request.world == 1 ? 0 : rounds);
}

Cost cost_of_all_to_all(const ScheduleRequest& request) {
  const auto others = static_cast<std::uint64_t>(request.world - 1);
  const std::uint64_t part = request.bytes.count / static_cast<std::uint64_t>(request.world);
  if (others == 0) return {};
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {2, 2 * others * part, 2 * others * part, others * part};
    case OperationKind::reduce_scatter:
      return {1, others * part, others * part, others * part};
    case OperationKind::all_gather:
      return {1, others * part, others * part, 0};
    case OperationKind::broadcast:
      if (request.rank == request.root) return {2, 2 * others * part, 0, 0};
      return {2, (others - 1) * part, (others + 1) * part, 0};
    default:
      if (request.rank == request.root) return {2, others * part, 2 * others * part, others * part};
      return {2, (others + 1) * part, others * part, others * part};
  }
}

}  // namespace

Algorithm all_to_all() {
  return {"all_to_all",
          "every rank adds one part that all send it, and sends the sum to all",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_all_to_all,
          cost_of_all_to_all,
          /*adds_in_rank_order=*/true};
}

}  // namespace rondo::collective
