#pragma once

#include <string>
#include <vector>

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

}  // namespace rondo::plan
