#include "rondo/collective/algorithms/rank_order.h"

#include <algorithm>
#include <optional>

#include "rondo/collective/plan_builder.h"

namespace rondo::collective {
namespace {

// What all_to_all does first, and the algorithm then.
struct Phases {
  PlanRequest sum;
  std::optional<PlanRequest> way_back;
};

Phases phases_of(const Algorithm& algorithm, const PlanRequest& request) {
  Phases phases{request, std::nullopt};
  if (request.operation != OperationKind::all_reduce) return phases;
  // A tree that moves whole buffers only starts from one rank, which then collects the parts.
  const bool gathers = algorithm.has(OperationKind::all_gather);
  phases.sum.operation = gathers ? OperationKind::reduce_scatter : OperationKind::reduce;
  phases.way_back = request;
  phases.way_back->operation = gathers ? OperationKind::all_gather : OperationKind::broadcast;
  phases.sum.root = phases.way_back->root = 0;
  return phases;
}

}  // namespace

Plan rank_order_plan(const Algorithm& algorithm, const PlanRequest& request) {
  const Phases phases = phases_of(algorithm, request);
  PlanBuilder builder(request, algorithm.name + " in rank order");
  const Plan sum = all_to_all().plan(phases.sum);
  builder.append(0, sum);
  int rounds = sum.rounds;
  if (phases.way_back) {
    const Plan way_back = algorithm.plan(*phases.way_back);
    builder.append(rounds, way_back);
    rounds += way_back.rounds;
  }
  return builder.finish(rounds);
}

Cost rank_order_cost(const Algorithm& algorithm, const PlanRequest& request) {
  const Phases phases = phases_of(algorithm, request);
  Cost cost = all_to_all().cost(phases.sum);
  if (!phases.way_back) return cost;
  const Cost way_back = algorithm.cost(*phases.way_back);
  cost.rounds += way_back.rounds;
  cost.bytes_sent += way_back.bytes_sent;
  cost.bytes_received += way_back.bytes_received;
  cost.scratch_bytes += way_back.scratch_bytes;
  return cost;
}

}  // namespace rondo::collective
