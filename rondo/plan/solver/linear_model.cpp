#include "rondo/plan/solver/linear_model.h"

#include <algorithm>
#include <map>

#include "rondo/base/text.h"

namespace rondo::plan {
namespace {

// MPS separates fields by blanks.
std::string field(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c <= ' '; }, '_');
  return name;
}

}  // namespace

int LinearProgram::add_column(Column column) {
  columns.push_back(std::move(column));
  return static_cast<int>(columns.size()) - 1;
}

int LinearProgram::add_row(Row row) {
  std::map<int, double> merged;
  for (const Entry& entry : row.entries) merged[entry.column] += entry.value;
  row.entries.clear();
  for (const auto& [column, value] : merged) {
    if (value != 0) row.entries.push_back({column, value});
  }
  rows.push_back(std::move(row));
  return static_cast<int>(rows.size()) - 1;
}

std::string to_mps(const LinearProgram& program) {
  TextStream out;
  out.precision(17);
  out << "NAME " << field(program.name) << "\nROWS\n N step_time\n";
  std::vector<std::vector<Entry>> by_column(program.columns.size());
  for (std::size_t r = 0; r < program.rows.size(); ++r) {
    const Row& row = program.rows[r];
    const bool has_lower = row.lower > -kUnbounded;
    const bool has_upper = row.upper < kUnbounded;
    const char kind = has_lower && has_upper ? (row.lower == row.upper ? 'E' : 'L') : has_lower ? 'G' : 'L';
    out << ' ' << (has_lower || has_upper ? kind : 'N') << ' ' << field(row.name) << '\n';
    for (const Entry& entry : row.entries)
      by_column[static_cast<std::size_t>(entry.column)].push_back({static_cast<int>(r), entry.value});
  }
  out << "COLUMNS\n";
  bool in_integers = false;
  const auto mark = [&](bool integers) {
    if (integers == in_integers) return;
    in_integers = integers;
    out << " MARK MARKER MARKER " << (integers ? "INTORG" : "INTEND") << '\n';
  };
  for (std::size_t c = 0; c < program.columns.size(); ++c) {
    const Column& column = program.columns[c];
    mark(column.is_integer);
    if (column.cost != 0 || by_column[c].empty())
      out << ' ' << field(column.name) << " step_time " << column.cost << '\n';
    for (const Entry& entry : by_column[c]) {
      out << ' ' << field(column.name) << ' '
          << field(program.rows[static_cast<std::size_t>(entry.column)].name) << ' ' << entry.value << '\n';
    }
  }
  mark(false);
  out << "RHS\n";
  // The constant of the objective is the negative of its right-hand side.
  if (program.constant != 0) out << " RHS step_time " << -program.constant << '\n';
  for (const Row& row : program.rows) {
    const double side = row.upper < kUnbounded ? row.upper : row.lower;
    if (side != 0 && side > -kUnbounded) out << " RHS " << field(row.name) << ' ' << side << '\n';
  }
  out << "RANGES\n";
  for (const Row& row : program.rows) {
    if (row.lower > -kUnbounded && row.upper < kUnbounded && row.lower != row.upper)
      out << " RANGE " << field(row.name) << ' ' << row.upper - row.lower << '\n';
  }
  out << "BOUNDS\n";
  for (const Column& column : program.columns) {
    if (column.lower != 0) out << " LO BOUND " << field(column.name) << ' ' << column.lower << '\n';
    if (column.upper < kUnbounded) out << " UP BOUND " << field(column.name) << ' ' << column.upper << '\n';
  }
  out << "ENDATA\n";
  return out.str();
}

}  // namespace rondo::plan
