#pragma once

#include <string>
#include <vector>

#include "rondo/collective/plan.h"

namespace rondo::collective {

// A way to run collectives. Functions of the request alone: no communication, no state, any thread.
struct Algorithm {
  std::string name;                       // as --algorithm takes it
  std::string summary;                    // one line, for people
  std::vector<OperationKind> operations;  // for which it makes plans
  // The steps of request.rank. Called for operations of the list, with a request that make_plan has checked.
  Plan (*plan)(const PlanRequest&);
  // What the closed forms of docs/algorithms.md say for request.rank. Exact where the elements divide evenly.
  Cost (*cost)(const PlanRequest&);
  // Whether its own plans add all ranks' numbers in the order of ranks in one step.
  bool adds_in_rank_order = false;

  // Whether `operations` has it.
  bool has(OperationKind operation) const;
};

// The algorithms of docs/algorithms.md, one file each, of the same name.
Algorithm naive();               // gathered and added at one rank
Algorithm all_to_all();          // each rank adds one part of all, and sends it to all
Algorithm reduce_broadcast();    // to one rank along a binomial tree, and back
Algorithm ring();                // around a ring, a piece a rank
Algorithm halving_doubling();    // recursive halving, then doubling
Algorithm double_binary_tree();  // two trees, each with half of the data
Algorithm torus_2d();            // rings along rows and columns
Algorithm hierarchical();        // within hosts and between them
Algorithm direct();              // each rank reads all and adds on its own

// All algorithms, in the order in which they are listed to users.
const std::vector<Algorithm>& algorithms();
// Their names, in the same order.
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
