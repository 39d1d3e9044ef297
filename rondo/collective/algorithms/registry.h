#pragma once

#include <string>
#include <vector>

#include "rondo/collective/plan.h"

namespace rondo::collective {

// A way to run collectives. Functions of the request alone: no communication, no state, any thread.
struct Algorithm {
  std::string name;
  std::string summary;  // one line, for people
  std::vector<OperationKind> operations;
  // The steps of request.rank. Called for operations of the list, with a request that make_plan has checked.
  Plan (*plan)(const PlanRequest&);
  // What the closed forms of docs/algorithms.md say for request.rank. Exact where the elements divide evenly.
  Cost (*cost)(const PlanRequest&);
  // Whether its own plans add all ranks' numbers in the order of ranks in one step.
  bool adds_in_rank_order = false;

  bool has(OperationKind operation) const;
};

// One file each, of the same name.
Algorithm naive();
Algorithm all_to_all();
Algorithm reduce_broadcast();
Algorithm ring();
Algorithm halving_doubling();
Algorithm double_binary_tree();
Algorithm torus_2d();
Algorithm hierarchical();
Algorithm direct();

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

// Plans whose sums depend on the ranks' numbers alone: neither on the algorithm, nor on where in the buffer
// an element lies, nor on which ranks share a host. Every rank gets its part from all others and adds it in
// the order of ranks 0, 1, 2, ..., rounding once, as all_to_all does; the way back is the algorithm's own.
//
// An algorithm cannot keep its own way to the sum: what ranks add on the way fixes another order.

// For an operation that reduces, with a request that the algorithm accepts.
Plan rank_order_plan(const Algorithm& algorithm, const PlanRequest& request);
// Its closed form, as Algorithm::cost.
Cost rank_order_cost(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace rondo::collective
