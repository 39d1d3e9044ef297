#pragma once

#include <string>
#include <vector>

#include "rondo/collective/plan.h"

namespace rondo::collective {

// A way to run collectives. The functions depend on the request alone: no communication, no state, any
// thread.
struct Algorithm {
  std::string name;                       // value of --algorithm
  std::string summary;                    // one line for users
  std::vector<OperationKind> operations;  // operations that it has plans for
  // Returns the steps of request.rank. Called for operations of the list, with a request that make_plan has
  // checked.
  Plan (*plan)(const PlanRequest&);
  // Returns the cost of request.rank by the closed forms of docs/algorithms.md. Exact if the elements divide
  // evenly.
  Cost (*cost)(const PlanRequest&);
  // Whether its own plans add all ranks' values in the order of ranks in one step.
  bool adds_in_rank_order = false;

  // Returns whether `operations` contains it.
  bool has(OperationKind operation) const;
};

// The algorithms of docs/algorithms.md, each in a file of the same name.
Algorithm naive();               // gathered and added at one rank
Algorithm all_to_all();          // each rank adds one part of all ranks, and sends it to all
Algorithm reduce_broadcast();    // to one rank along a binomial tree, and back
Algorithm ring();                // around a ring, one piece per rank
Algorithm halving_doubling();    // recursive halving, then doubling
Algorithm double_binary_tree();  // two trees, each with half of the data
Algorithm torus_2d();            // rings along rows and columns
Algorithm hierarchical();        // within hosts and between them
Algorithm direct();              // each rank reads all data and adds it itself

// Returns all algorithms, in the order of listings for users.
const std::vector<Algorithm>& algorithms();
// Returns their names, in the same order.
std::vector<std::string> algorithm_names();
// Returns an algorithm by name. Throws UsageError that lists the known names.
const Algorithm& find_algorithm(const std::string& name);

// Returns the operations that have plans: all_reduce, reduce_scatter, all_gather, broadcast, reduce.
const std::vector<OperationKind>& planned_operations();
// Returns an operation by name. Throws UsageError that lists the known names.
OperationKind find_operation(const std::string& name);

// Makes one rank's plan; with request.in_rank_order that of rank_order_plan() if necessary. Throws UsageError
// if the algorithm does not have the operation or the request is invalid: a rank, root or grid outside of the
// world, or bytes that are not whole elements.
Plan make_plan(const std::string& algorithm, const PlanRequest& request);
// Makes the plans of all ranks; ignores request.rank.
std::vector<Plan> make_plans(const std::string& algorithm, PlanRequest request);
// Returns the closed-form cost of a plan of make_plan; see Algorithm::cost.
Cost closed_form_cost(const std::string& algorithm, const PlanRequest& request);

// Plans whose sums depend on the ranks' numbers alone: neither on the algorithm, nor on the position of an
// element in the buffer, nor on the hosts of the ranks. Every rank receives its part from all others and adds
// it in the order of ranks 0, 1, 2, ..., rounding once, as all_to_all does; the algorithm itself distributes
// the result.
//
// The algorithm's own reduction cannot be used: partial sums would be added in another order.

// Makes a plan in rank order, for a reducing operation and a request that the algorithm accepts.
Plan rank_order_plan(const Algorithm& algorithm, const PlanRequest& request);
// Returns its closed-form cost, as Algorithm::cost.
Cost rank_order_cost(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace rondo::collective
