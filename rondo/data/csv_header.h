#pragma once

#include <cstddef>
#include <string>

#include "rondo/data/csv.h"
#include "rondo/data/csv_reader.h"

namespace rondo {

// Content of the first row of a table.
enum class FirstRow {
  names,    // of the columns
  values,   // as in the rows below
  unclear,  // neither: an error
};

// Judges a first row. It holds names when every field is a name, when its label is the name that the user
// gave as the label column (`is_named_label`), or when its features are column numbers (0, 1, 2 ...) and its
// label is unlike all others. It holds values when every feature is a number and its label is like the
// others. `label` is the column of labels, the number of fields where the table has none. `others` stands
// behind the first row; reads of it as many rows as the answer takes.
FirstRow judge_first_row(const CsvRow& row, std::size_t label, bool is_named_label, CsvLabels reading,
                         const KnownData& known, CsvReader others);

// Returns the message for a first row that is neither names nor values; shows its fields.
std::string unclear_first_row(const CsvRow& row, const std::string& path);

}  // namespace rondo
