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

}  // namespace rondo::collective
