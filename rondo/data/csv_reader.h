#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/csv.h"

namespace rondo {

// One record of a CSV file: its fields without quotes, and the line it starts on (from 1).
struct CsvRow {
  std::vector<std::string> fields;
  std::int64_t line = 0;
};

// Reads records one after another as RFC 4180 describes them: fields may be quoted with ", "" is a quote
// inside, quoted fields may hold delimiters and line ends; lines end with LF or CRLF. Empty lines are passed
// over, and blanks around unquoted fields are dropped.
class CsvReader {
 public:
  // `text` must outlive the reader; `path` is for messages.
  CsvReader(std::string_view text, char delimiter, std::string path);
  // Reads the next record into `row`; false at the end. Throws DataError naming file, line and what was
  // expected for an unclosed quote, text after a closing quote, or a zero byte.
  bool next(CsvRow& row);

 private:
  void read_record(CsvRow& row);
  std::string read_quoted();
  std::string read_plain();

  std::string_view text_;
  char delimiter_;
  std::string path_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
};

// Returns which of tab, semicolon and comma divides the first hundred records into as many fields as the
// first of them, at least two; among several, the one that leaves more fields that are numbers (with ; and
// tab also with a decimal comma), then the first of this list. Comma when there is none.
char guess_delimiter(std::string_view text);

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

// Returns the value of a decimal number, perhaps with a leading plus sign; nullopt for any other text. A
// value too small for a double is 0, one too large an infinity; "nan" and "inf" are numbers that are not
// finite.
std::optional<double> read_csv_number(std::string_view text);

// Returns whether the text is a number once its only comma is replaced by a decimal point: "0,53".
bool has_decimal_comma(std::string_view text);

}  // namespace rondo
