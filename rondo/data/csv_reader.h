#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace rondo
