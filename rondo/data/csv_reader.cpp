#include "rondo/data/csv_reader.h"

#include <compare>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/csv_number.h"

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

namespace {

// How well a delimiter divides the first records.
struct Division {
  std::int64_t alike = 0;  // records with as many fields as the first
  double numbers = 0;      // share of the fields of all records that are numbers
  auto operator<=>(const Division&) const = default;
};

Division divide_by(std::string_view text, char delimiter) {
  constexpr std::int64_t kJudged = 100;
  Division division;
  std::int64_t fields = 0, numbers = 0, records = 0;
  std::size_t width = 0;
  try {
    CsvReader reader(text, delimiter, "");
    for (CsvRow row; records < kJudged && reader.next(row); ++records) {
      if (records == 0) width = row.fields.size();
      if (width < 2) return {};
      division.alike += row.fields.size() == width ? 1 : 0;
      for (const std::string& field : row.fields) {
        ++fields;
        numbers += read_csv_number(field) || (delimiter != ',' && has_decimal_comma(field)) ? 1 : 0;
      }
    }
  } catch (const DataError&) {
    // Damaged text, or the wrong delimiter: judged by the records before it.
  }
  division.numbers = fields > 0 ? static_cast<double>(numbers) / static_cast<double>(fields) : 0.0;
  return division;
}

}  // namespace

char guess_delimiter(std::string_view text) {
  char best = ',';
  Division most;
  for (const char candidate : {'\t', ';', ','}) {
    const Division division = divide_by(text, candidate);
    if (division > most) {
      best = candidate;
      most = division;
    }
  }
  return best;
}

}  // namespace rondo
