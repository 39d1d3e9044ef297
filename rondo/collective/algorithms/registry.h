#pragma once

#include <string>
#include <vector>

#include "rondo/collective/schedule.h"

namespace rondo::collective {

// A way to run collectives. The functions depend on the request alone: no communication, no state, any
// thread.
struct Algorithm {
  std::string name;                       // value of --algorithm
  std::string summary;                    // one line for users
  std::vector<OperationKind> operations;  // operations for which the algorithm has schedules
  // Returns the steps of request.rank. Called for operations of the list, with a request that make_schedule
  // has checked.
  Schedule (*schedule)(const ScheduleRequest&);
  // Returns the cost of request.rank by the closed forms of docs/algorithms.md. Exact if the elements divide
  // evenly.
  Cost (*cost)(const ScheduleRequest&);
  // Whether its own schedules add all ranks' values in the order of ranks in one step.
  bool adds_in_rank_order = false;

  // Returns whether `operations` contains it.
  bool has(OperationKind operation) const;
};

// The algorithms described in docs/algorithms.md. Each is in a file of the same name.
Algorithm naive();               // gathered and added at one rank
Algorithm all_to_all();          // each rank adds one part from all ranks, and sends the sum to all
Algorithm reduce_broadcast();    // to one rank along a binomial tree, and back
Algorithm ring();                // around a ring, one piece per rank
Algorithm halving_doubling();    // recursive halving, then doubling
Algorithm double_binary_tree();  // two trees, each with half of the data
Algorithm torus_2d();            // rings along rows and columns
Algorithm hierarchical();        // separate steps within hosts and between hosts
Algorithm direct();              // each rank reads all data and adds it itself

// Returns all algorithms, in the order of listings for users.
const std::vector<Algorithm>& algorithms();
// Returns their names, in the same order.
std::vector<std::string> algorithm_names();
// Returns an algorithm by name. Throws UsageError that lists the known names.
const Algorithm& find_algorithm(const std::string& name);

// Returns the operations that have schedules: all_reduce, reduce_scatter, all_gather, broadcast, reduce.
const std::vector<OperationKind>& scheduled_operations();
// Returns an operation by name. Throws UsageError that lists the known names.
OperationKind find_operation(const std::string& name);

// Makes one rank's schedule; with request.in_rank_order that of rank_order_schedule() if necessary. Throws
// UsageError if the algorithm does not have the operation or the request is invalid: a rank, root or grid
// outside of the world, or bytes that are not whole elements.
Schedule make_schedule(const std::string& algorithm, const ScheduleRequest& request);
// Makes the schedules of all ranks; ignores request.rank.
std::vector<Schedule> make_schedules(const std::string& algorithm, ScheduleRequest request);
// Returns the closed-form cost of a schedule of make_schedule; see Algorithm::cost.
Cost closed_form_cost(const std::string& algorithm, const ScheduleRequest& request);

// Schedules whose sums depend on the ranks' numbers alone: neither on the algorithm, nor on the position of
// an element in the buffer, nor on the hosts of the ranks. Every rank receives its part from all others and
// adds it in the order of ranks 0, 1, 2, ..., rounding once, as all_to_all does; the algorithm itself
// distributes the result.
//
// The algorithm's own reduction cannot be used: partial sums would be added in another order.

// Makes a schedule in rank order, for a reducing operation and a request that the algorithm accepts.
Schedule rank_order_schedule(const Algorithm& algorithm, const ScheduleRequest& request);
// Returns its closed-form cost, as Algorithm::cost.
Cost rank_order_cost(const Algorithm& algorithm, const ScheduleRequest& request);

}  // namespace rondo::collective
