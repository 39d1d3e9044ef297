#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/base/cancel.h"

namespace rondo::plan {

constexpr double kUnbounded = 1e30;

struct Column {
  std::string name;
  double cost = 0;
  double lower = 0;
  double upper = kUnbounded;
  bool is_integer = false;
};

struct Entry {
  int column = 0;
  double value = 0;
};

struct Row {
  std::string name;
  double lower = -kUnbounded;
  double upper = kUnbounded;
  std::vector<Entry> entries;  // a column may be there more than once; values add up
};

// A linear or mixed-integer program: the least of constant + sum of cost times column, within all bounds.
struct LinearProgram {
  std::string name;
  double constant = 0;
  std::vector<Column> columns;
  std::vector<Row> rows;

  int add_column(Column column);
  int add_row(Row row);
};

// As a free-format MPS file, which every solver reads. Names become column and row names with blanks
// replaced.
std::string to_mps(const LinearProgram& program);

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
