#pragma once

#include "rondo/collective/algorithms/algorithm.h"

// Plans whose sums depend on the ranks' numbers alone: neither on the algorithm, nor on where in the buffer
// an element lies, nor on which ranks share a host. Every rank gets its part from all others and adds it in
// the order of ranks 0, 1, 2, ..., rounding once, as all_to_all does; the way back is the algorithm's own.
//
// An algorithm cannot keep its own way to the sum: what ranks add on the way fixes another order.
namespace rondo::collective {

// For an operation that reduces, with a request that the algorithm accepts.
Plan rank_order_plan(const Algorithm& algorithm, const PlanRequest& request);
// Its closed form, as Algorithm::cost.
Cost rank_order_cost(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace rondo::collective
