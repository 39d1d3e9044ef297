// Every rank receives the data of all others at once and adds it itself: one round without a second hop, the
// lowest possible latency, for (p - 1) times the data. Between ranks that share memory a message is a read of
// the peer's buffer.
#include "rondo/collective/algorithms/phases.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

Schedule schedule_direct(const ScheduleRequest& request) {
  ScheduleBuilder builder(request, "direct");
  const PieceOf part = [&](int rank) { return part_of(request, rank); };
  switch (request.operation) {
    case OperationKind::all_reduce:
      // Every rank owns all of the data.
      exchange_and_add(builder, 0, [&](int) { return builder.data(); });
      break;
    case OperationKind::reduce_scatter:
      exchange_and_add(builder, 0, part);
      break;
    case OperationKind::all_gather:
      exchange_pieces(builder, 0, part);
      break;
    default:
      star(builder);
  }
  return builder.finish(request.world == 1 ? 0 : 1);
}

Cost cost_of_direct(const ScheduleRequest& request) {
  const auto others = static_cast<std::uint64_t>(request.world - 1);
  const std::uint64_t all = request.bytes.count;
  const std::uint64_t part = all / static_cast<std::uint64_t>(request.world);
  if (others == 0) return {};
  switch (request.operation) {
    case OperationKind::all_reduce:
      return {1, others * all, others * all, others * all};
    case OperationKind::reduce_scatter:
      return {1, others * part, others * part, others * part};
    case OperationKind::all_gather:
      return {1, others * part, others * part, 0};
    default:
      return star_cost(request);
  }
}

}  // namespace

Algorithm direct() {
  return {"direct",
          "every rank reads every buffer and adds on its own",
          {OperationKind::all_reduce, OperationKind::reduce_scatter, OperationKind::all_gather,
           OperationKind::broadcast, OperationKind::reduce},
          schedule_direct,
          cost_of_direct,
          /*adds_in_rank_order=*/true};
}

}  // namespace rondo::collective
