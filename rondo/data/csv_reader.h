#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/csv.h"

namespace rondo {

// One record of a CSV file: its fields without quotes, and its first line (from 1).
struct CsvRow {
  std::vector<std::string> fields;
  std::int64_t line = 0;
};

// A reader of records according to RFC 4180. Fields may be quoted with ", and "" inside is a quote. Quoted
// fields may contain delimiters and line ends. Lines end with LF or CRLF. Skips empty lines and strips blanks
// around unquoted fields.
class CsvReader {
 public:
  // `text` must outlive the reader; `path` is used in messages.
  CsvReader(std::string_view text, char delimiter, std::string path);
  // Reads the next record into `row`. Returns false at the end. Throws DataError naming the file, the line
  // and the expected content for an unclosed quote, text after a closing quote, or a zero byte.
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

// Returns the one of tab, semicolon and comma that divides the most of the first 100 records into as many
// fields as the first record, at least two. Prefers the one with the larger share of numeric fields (with
// semicolon and tab, also with a decimal comma), then the first in this list. Returns comma if there is none.
char guess_delimiter(std::string_view text);

// Content of the first row of a table.
enum class FirstRow {
  names,    // column names
  values,   // values, like the rows below
  unclear,  // neither: an error
};

// Classifies the first row. It holds names if every field is a name, or if its label is the label column's
// name that the user gave (`is_named_label`). It also holds names if its features are column numbers (from
// 0 or 1) and its label differs from all others. It holds values if every feature is a number and its label
// resembles the others. `label` is the label column; the number of fields if there is none. `others` is
// positioned after the first row and is read as far as needed.
FirstRow judge_first_row(const CsvRow& row, std::size_t label, bool is_named_label, CsvLabels reading,
                         const KnownData& known, CsvReader others);

// Returns the error message for a first row that is neither names nor values; shows its fields.
std::string unclear_first_row(const CsvRow& row, const std::string& path);

// Parses a decimal number with an optional plus sign; nullopt for any other text. A value too small for a
// double is 0, one too large is an infinity. "nan" and "inf" are accepted as non-finite numbers.
std::optional<double> read_csv_number(std::string_view text);

// Returns whether the text is a number with one decimal comma: "0,53".
bool has_decimal_comma(std::string_view text);

}  // namespace rondo
