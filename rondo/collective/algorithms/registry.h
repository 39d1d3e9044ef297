#pragma once

#include <string>
#include <vector>

#include "rondo/collective/algorithms/algorithm.h"

namespace rondo::collective {

// All algorithms, in the order in which they are listed to users.
const std::vector<Algorithm>& algorithms();
std::vector<std::string> algorithm_names();
// Throws UsageError that names what there is.
const Algorithm& find_algorithm(const std::string& name);

// The operations that plans exist for: all_reduce, reduce_scatter, all_gather, broadcast, reduce.
const std::vector<OperationKind>& planned_operations();
// Throws UsageError that names what there is.
OperationKind find_operation(const std::string& name);

// One rank's plan; with request.in_rank_order that of rank_order.h. Throws UsageError when the algorithm does
// not have the operation or the request cannot be: a rank, root or grid outside of the world, bytes that are
// not whole elements.
Plan make_plan(const std::string& algorithm, const PlanRequest& request);
// The plans of all ranks; request.rank does not count.
std::vector<Plan> make_plans(const std::string& algorithm, PlanRequest request);
// What the closed forms say for a plan of make_plan; see Algorithm::cost.
Cost closed_form_cost(const std::string& algorithm, const PlanRequest& request);

}  // namespace rondo::collective
