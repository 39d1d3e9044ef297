#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/data_kinds.h"
#include "rondo/data/open.h"

namespace rondo {

// A table of numbers with a class, or a number to predict, for each row.
struct CsvTable {
  std::vector<std::string> columns;      // names of the features: from the header, or "column 0" ...
  std::vector<std::string> class_names;  // the label texts; class i is class_names[i]
  std::vector<double> features;          // rows x columns, row by row
  std::vector<std::int64_t> labels;      // of each row, -100 without a label column; empty with numbers
  std::vector<float> numbers;            // to predict, instead of labels
  std::int64_t rows() const { return static_cast<std::int64_t>(std::max(labels.size(), numbers.size())); }
};

// How the label column is read.
enum class CsvLabels {
  classes,
  numbers,  // any finite ones
  none,     // all columns are features
};

// Reads a whole file. The delimiter is comma, tab or semicolon, whichever divides the first lines alike
// (guess_delimiter()). The first line is a header when all its fields are names, when `label_column` is the
// name of one of them, or when its features are column numbers and its label is unlike all others. All
// columns but the label (`label_column`: a name or a number from 0; empty: the last) must be finite numbers.
// Classes are the distinct labels, in numeric order when all are whole numbers and in alphabetical order
// otherwise. Throws DataError naming `path`, the line and what was expected there, also for a first line that
// is neither a header nor a row; UsageError for a label column that does not exist. Classes that are `known`
// are taken as they are, and another label is an error.
CsvTable parse_csv(std::string_view text, const std::string& path, const std::string& label_column,
                   CsvLabels reading = CsvLabels::classes, const KnownData& known = {});

// Reads files of the same columns as one table, one behind the other, as parse_csv() reads each; classes are
// the labels of all. Throws DataError also where columns differ. `starts` gets the first row of each file,
// and the number of rows.
CsvTable read_csv_files(const std::vector<std::string>& paths, const std::string& label_column,
                        CsvLabels reading, const KnownData& known, std::vector<std::int64_t>& starts);

// Returns whether the beginning of a file, whole lines of it, is a table: at least two rows that are numbers
// in all columns but at most one, and among ten such rows no more than one of another form.
bool looks_like_table(std::string_view head);

// Fields of the first line.
std::size_t csv_width(std::string_view text, const std::string& path);

}  // namespace rondo
