#include "rondo/data/csv_reader.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

CsvReader::CsvReader(std::string_view text, char delimiter, std::string path)
    : text_(text), delimiter_(delimiter), path_(std::move(path)) {
  // Written by some spreadsheets; no part of the first field.
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
}

bool CsvReader::next(CsvRow& row) {
  while (position_ < text_.size() && (text_[position_] == '\n' || text_[position_] == '\r')) {
    if (text_[position_] == '\n') ++line_;
    ++position_;
  }
  if (position_ >= text_.size()) return false;
  row.fields.clear();
  row.line = line_;
  read_record(row);
  return true;
}

void CsvReader::read_record(CsvRow& row) {
  while (true) {
    const bool quoted = position_ < text_.size() && text_[position_] == '"';
    row.fields.push_back(quoted ? read_quoted() : read_plain());
    if (position_ >= text_.size()) return;
    const char c = text_[position_];
    if (c == '\n' || c == '\r') return;
    if (c != delimiter_) {
      throw DataError(str("'", path_, "', line ", line_, ": text after the closing quote of field ",
                          row.fields.size(), ", expected a delimiter or the end of the line"));
    }
    ++position_;
  }
}

std::string CsvReader::read_quoted() {
  const std::int64_t opened = line_;
  std::string field;
  ++position_;
  while (position_ < text_.size()) {
    const char c = text_[position_++];
    if (c == '"') {
      if (position_ >= text_.size() || text_[position_] != '"') return field;
      ++position_;
    } else if (c == '\n') {
      ++line_;
    }
    field.push_back(c);
  }
  throw DataError(
      str("'", path_, "', line ", opened, ": a quote is opened here and never closed, expected \""));
}

std::string CsvReader::read_plain() {
  const std::size_t start = position_;
  for (; position_ < text_.size(); ++position_) {
    const char c = text_[position_];
    if (c == delimiter_ || c == '\n' || c == '\r') break;
    if (c == '\0') {
      throw DataError(
          str("'", path_, "', line ", line_, ": a zero byte at offset ", position_, ", expected text"));
    }
  }
  return std::string(trim(text_.substr(start, position_ - start)));
}

char guess_delimiter(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  char best = ',';
  std::ptrdiff_t most = 0;
  for (const char candidate : {',', '\t', ';'}) {
    const std::ptrdiff_t count = std::count(line.begin(), line.end(), candidate);
    if (count > most) {
      best = candidate;
      most = count;
    }
  }
  return best;
}

}  // namespace rondo
