#include "rondo/data/csv_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <compare>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Accepts a decimal comma too, which is reported as a separate error.
bool is_number(const std::string& field) { return read_csv_number(field) || has_decimal_comma(field); }

// Returns whether the field marks a missing value. Such fields alone do not make a row of names.
bool is_gap(const std::string& field) {
  static constexpr std::array<std::string_view, 8> marks = {"",    "?",    "-",    "NA",
                                                            "N/A", "NULL", "null", "None"};
  return std::find(marks.begin(), marks.end(), field) != marks.end();
}

bool is_whole(const std::string& field) {
  return !field.empty() &&
         std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> features_of(const CsvRow& row, std::size_t label) {
  std::vector<std::string> features = row.fields;
  if (label < features.size()) features.erase(features.begin() + static_cast<std::ptrdiff_t>(label));
  return features;
}

// Returns whether the fields are column numbers: 0, 1, 2 ... or 1, 2, 3 ...
bool count_columns(const std::vector<std::string>& fields) {
  const std::size_t first = fields.front() == "1" ? 1 : 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i] != std::to_string(first + i)) return false;
  }
  return true;
}

// Returns whether the fields may be names such as years: whole numbers without repetition.
bool may_be_numbers_as_names(const std::vector<std::string>& fields) {
  return std::all_of(fields.begin(), fields.end(), is_whole) &&
         std::set<std::string>(fields.begin(), fields.end()).size() == fields.size();
}

// Judges a row of numbers with a class by the classes of the other rows.
FirstRow judge_by_class(const CsvRow& row, std::size_t label, CsvReader& others) {
  const std::string& own = row.fields[label];
  const std::vector<std::string> features = features_of(row, label);
  const bool is_numbered = is_number(own);
  const bool may_be_names = may_be_numbers_as_names(features);
  if (own.empty() || (is_numbered && (row.fields.size() < 3 || !count_columns(row.fields))))
    return FirstRow::values;
  bool all_numbers = true;
  std::map<std::string, std::int64_t> counts;
  for (CsvRow other; others.next(other);) {
    if (label >= other.fields.size()) continue;  // reported as a separate error
    const std::string& theirs = other.fields[label];
    if (theirs == own) return FirstRow::values;
    all_numbers = all_numbers && is_number(theirs);
    if (!all_numbers && !may_be_names) return FirstRow::values;
    ++counts[theirs];
  }
  if (counts.empty()) return FirstRow::values;
  // A class with a single row is suspicious only if every other class has more rows.
  const bool alone =
      std::all_of(counts.begin(), counts.end(), [](const auto& each) { return each.second > 1; });
  if (is_numbered) return alone ? FirstRow::unclear : FirstRow::values;
  if (!all_numbers && !alone) return FirstRow::values;
  return count_columns(features) ? FirstRow::names : FirstRow::unclear;
}

}  // namespace

FirstRow judge_first_row(const CsvRow& row, std::size_t label, bool is_named_label, CsvLabels reading,
                         const KnownData& known, CsvReader others) {
  if (is_named_label) return FirstRow::names;
  const std::vector<std::string> features = features_of(row, label);
  const auto numbers = static_cast<std::size_t>(std::count_if(features.begin(), features.end(), is_number));
  const auto gaps = static_cast<std::size_t>(std::count_if(features.begin(), features.end(), is_gap));
  const bool labelled = reading != CsvLabels::none;
  if (numbers == 0) {
    const bool all_names = gaps < features.size() && (!labelled || !is_number(row.fields[label]));
    return all_names ? FirstRow::names : FirstRow::unclear;
  }
  if (numbers < features.size()) return FirstRow::unclear;
  if (!labelled)
    return features.size() > 2 && features.front() == "0" && count_columns(features) ? FirstRow::unclear
                                                                                     : FirstRow::values;
  const std::string& own = row.fields[label];
  if (reading == CsvLabels::numbers) {
    if (is_number(own) || is_gap(own)) return FirstRow::values;
    return count_columns(features) ? FirstRow::names : FirstRow::unclear;
  }
  const bool is_known =
      std::find(known.class_names.begin(), known.class_names.end(), own) != known.class_names.end();
  return is_known ? FirstRow::values : judge_by_class(row, label, others);
}

std::string unclear_first_row(const CsvRow& row, const std::string& path) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> shown = row.fields;
  if (shown.size() > kShown) shown.resize(kShown);
  return str("'", path, "', line ", row.line, ": '", join(shown, ", "),
             shown.size() < row.fields.size() ? ", ..." : "",
             "' is neither a row of column names nor a row of values like those below it. If it holds names, "
             "give the "
             "label column by its name (--label-column); if it holds values, complete them or move the row "
             "down; else "
             "remove the line");
}

namespace {

template <class Number>
std::from_chars_result read_into(std::string_view text, Number& value) {
  return std::from_chars(text.data(), text.data() + text.size(), value);
}

// Distinguishes a number too small for a double (returns 0) from one that is too large (returns an infinity).
double beyond_double(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double sign = text.starts_with('-') ? -1.0 : 1.0;
  long double wide = 0;
  if (read_into(text, wide).ec == std::errc()) return wide > -1 && wide < 1 ? 0.0 : sign * kInfinity;
  const std::size_t exponent = text.find_first_of("eE");
  const bool is_small = exponent != std::string_view::npos && text.substr(exponent + 1).starts_with('-');
  return is_small ? 0.0 : sign * kInfinity;
}

}  // namespace

std::optional<double> read_csv_number(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = read_into(text, value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return beyond_double(text);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

bool has_decimal_comma(std::string_view text) {
  if (std::count(text.begin(), text.end(), ',') != 1) return false;
  std::string with_point(text);
  with_point[with_point.find(',')] = '.';
  return read_csv_number(with_point).has_value();
}

CsvReader::CsvReader(std::string_view text, char delimiter, std::string path)
    : text_(text), delimiter_(delimiter), path_(std::move(path)) {
  // Some spreadsheets write a byte order mark, which is not part of the first field.
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

// Quality of a delimiter on the first records.
struct Division {
  std::int64_t alike = 0;  // number of records with the same number of fields as the first
  double numbers = 0;      // share of all fields that are numbers
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
    // Damaged text or a wrong delimiter: uses only the records before it.
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
