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
  std::vector<std::string> columns;      // feature names: from the header, or "column 0" ...
  std::vector<std::string> class_names;  // label texts; class i is class_names[i]
  std::vector<double> features;          // rows x columns, row-major
  // class of each row, -100 without a label column; empty if `numbers` is used
  std::vector<std::int64_t> labels;
  std::vector<float> numbers;  // numbers to predict, instead of labels
  std::int64_t rows() const { return static_cast<std::int64_t>(std::max(labels.size(), numbers.size())); }
};

// Interpretation of the label column.
enum class CsvLabels {
  classes,
  numbers,  // any finite numbers
  none,     // no label: all columns are features
};

// Parses a whole file. The delimiter is the one of comma, tab and semicolon that divides the first lines most
// evenly (guess_delimiter()). judge_first_row() (csv_reader.h) decides whether the first line is a header.
// All columns but the label (`label_column`: a name or a number from 0; empty: the last) must be finite
// numbers. Classes are the distinct labels, in numeric order if all are whole numbers, else in alphabetical
// order. With class names in `known`, uses those, and any other label is an error. Throws DataError naming
// `path`, the line and the expected content, also for a first line that is neither a header nor a row. Throws
// UsageError for a nonexistent label column.
CsvTable parse_csv(std::string_view text, const std::string& path, const std::string& label_column,
                   CsvLabels reading = CsvLabels::classes, const KnownData& known = {});

// Reads files with equal columns as one table, each like parse_csv(), in the given order. Classes are the
// labels of all files. Throws DataError also if the columns differ. `starts` receives the first row of each
// file and the number of rows.
CsvTable read_csv_files(const std::vector<std::string>& paths, const std::string& label_column,
                        CsvLabels reading, const KnownData& known, std::vector<std::int64_t>& starts);

// Returns whether the beginning of a file (whole lines) is a table: at least two rows that are numbers in all
// columns but at most one, and at most one other row per ten such rows.
bool looks_like_table(std::string_view head);

// Returns the number of fields of the first line.
std::size_t csv_width(std::string_view text, const std::string& path);

}  // namespace rondo
