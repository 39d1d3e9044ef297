#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/open.h"

namespace rondo {

// A table of numbers with a class for each row.
struct CsvTable {
  std::vector<std::string> columns;      // names of the features: from the header, or "column 0" ...
  std::vector<std::string> class_names;  // the label texts; class i is class_names[i]
  std::vector<float> features;           // rows x columns, row by row
  std::vector<std::int64_t> labels;      // of each row
  std::int64_t rows() const { return static_cast<std::int64_t>(labels.size()); }
};

// Reads a whole file. The delimiter is comma, tab or semicolon, whichever the first line has most of. The
// first line is a header when a feature in it is not a number, or when `label_column` is the name of one of
// its fields. All columns but the label (`label_column`: a name or a number from 0; empty: the last) must be
// finite numbers. Classes are the distinct labels, in numeric order when all are whole numbers and in
// alphabetical order otherwise. Throws DataError naming `path`, the line and what was expected there;
// UsageError for a label column that does not exist.
CsvTable parse_csv(std::string_view text, const std::string& path, const std::string& label_column);

// CSV and TSV for classification. Features are standardised with the mean and deviation of the training rows.
DataKind csv_kind();

}  // namespace rondo
