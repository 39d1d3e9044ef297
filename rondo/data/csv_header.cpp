#include "rondo/data/csv_header.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "rondo/base/text.h"
#include "rondo/data/csv_number.h"

namespace rondo {
namespace {

// Also with a decimal comma, which is an error of its own.
bool is_number(const std::string& field) { return read_csv_number(field) || has_decimal_comma(field); }

// Marks of a missing value, which alone make no row of names.
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

// Returns whether the fields count columns: 0, 1, 2 ... or 1, 2, 3 ...
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
    if (label >= other.fields.size()) continue;  // an error of its own
    const std::string& theirs = other.fields[label];
    if (theirs == own) return FirstRow::values;
    all_numbers = all_numbers && is_number(theirs);
    if (!all_numbers && !may_be_names) return FirstRow::values;
    ++counts[theirs];
  }
  if (counts.empty()) return FirstRow::values;
  // A class of one row is suspicious only where every other class has more.
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

}  // namespace rondo
