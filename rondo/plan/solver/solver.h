#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/plan/solver/linear_model.h"

namespace rondo::plan {

enum class SolveStatus {
  optimal,
  feasible,
  infeasible,
  nothing
};  // nothing: no solution before the deadline

struct SolveResult {
  SolveStatus status = SolveStatus::nothing;
  double objective = 0;        // of values
  double bound = -kUnbounded;  // no solution is better; certified by the solver
  std::vector<double> values;
  std::vector<double> row_duals;  // of a linear program: objective's change per unit of the row's bound
};

struct SolveOptions {
  Wait wait;  // when to give up; a cancelled token stops the solver
  double relative_gap = 1e-4;
  bool relax = false;         // ignore that columns are integer
  std::vector<double> start;  // a solution to begin with, if not empty
  // Only solutions with a smaller objective are looked for; `infeasible` then says that there is none.
  double cutoff = kUnbounded;
  // Called with the values of each better solution that is found on the way.
  std::function<void(const std::vector<double>&)> on_solution;
  // Asked now and then, with the bound proven so far; true ends the search.
  std::function<bool(double bound)> is_enough;
};

// Anything that solves linear programs with integer columns. One call at a time.
class LinearModel {
 public:
  virtual ~LinearModel() = default;
  virtual std::string name() const = 0;
  virtual SolveResult solve(const LinearProgram& program, const SolveOptions& options) = 0;
};

// HiGHS, or null when rondo was built without it.
std::unique_ptr<LinearModel> make_highs();

}  // namespace rondo::plan
