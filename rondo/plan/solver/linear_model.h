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
  std::vector<Entry> entries;  // a column may occur more than once; its values are summed
};

// A linear or mixed-integer program: minimizes constant + sum of cost times column within all bounds.
struct LinearProgram {
  std::string name;
  double constant = 0;
  std::vector<Column> columns;
  std::vector<Row> rows;

  int add_column(Column column);
  int add_row(Row row);
};

// Returns the program as a free-format MPS file. Blanks in names of columns and rows are replaced.
std::string to_mps(const LinearProgram& program);

enum class SolveStatus {
  optimal,
  feasible,
  infeasible,
  nothing
};  // no solution was found before the deadline

struct SolveResult {
  SolveStatus status = SolveStatus::nothing;
  double objective = 0;        // objective of `values`
  double bound = -kUnbounded;  // lower bound of every solution; certified by the solver
  std::vector<double> values;
  std::vector<double> row_duals;  // linear programs only: change of the objective per unit of the row's bound
};

struct SolveOptions {
  Wait wait;  // deadline and cancellation of the solver
  double relative_gap = 1e-4;
  bool relax = false;         // ignore integrality
  std::vector<double> start;  // initial solution, if not empty
  // Upper bound: only solutions with a smaller objective are searched. `infeasible` then means that there is
  // none.
  double cutoff = kUnbounded;
  // Called with the values of each improved solution during the search.
  std::function<void(const std::vector<double>&)> on_solution;
  // Called from time to time with the bound proven so far; returns true to end the search.
  std::function<bool(double bound)> is_enough;
};

// A solver of linear programs with integer columns. Not thread-safe.
class LinearModel {
 public:
  virtual ~LinearModel() = default;
  virtual std::string name() const = 0;
  virtual SolveResult solve(const LinearProgram& program, const SolveOptions& options) = 0;
};

// Returns HiGHS, or null if rondo was built without it.
std::unique_ptr<LinearModel> make_highs();

}  // namespace rondo::plan
