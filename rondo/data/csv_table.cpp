#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/csv.h"
#include "rondo/data/csv_reader.h"

namespace rondo {
namespace {

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<float> read_feature(std::string_view text) {
  const auto value = read_number<float>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// The position of the label: by name, by number, or the last.
std::size_t find_label(const CsvRow& first, const std::string& wanted, const std::string& path) {
  if (wanted.empty()) return first.fields.size() - 1;
  // Digits are always a number: they could also be the first value of a column without a name.
  if (const auto number = read_number<std::size_t>(wanted)) {
    if (*number < first.fields.size()) return *number;
  } else {
    const auto named = std::find(first.fields.begin(), first.fields.end(), wanted);
    if (named != first.fields.end()) return static_cast<std::size_t>(named - first.fields.begin());
  }
  throw UsageError(str("'", path, "' has no label column '", wanted, "', expected one of ",
                       join(first.fields, ", "), " or a number from 0 to ", first.fields.size() - 1));
}

bool is_header(const CsvRow& row, std::size_t label, const std::string& wanted) {
  if (!read_number<std::size_t>(wanted) && row.fields[label] == wanted) return true;
  for (std::size_t i = 0; i < row.fields.size(); ++i) {
    // An empty field is a missing number in a row of numbers, not a name.
    if (i != label && !row.fields[i].empty() && !read_number<float>(row.fields[i])) return true;
  }
  return false;
}

void check_label(const CsvRow& row, const std::string& label, const std::string& path) {
  const auto at = [&] { return str("'", path, "', line ", row.line, ": "); };
  if (label.empty()) throw DataError(str(at(), "no label, expected a class"));
  if (const auto number = read_number<double>(label); number && *number != std::floor(*number)) {
    throw DataError(str(at(), "label ", label,
                        ", expected a class: a whole number or a name (a column of measurements "
                        "is not a label; choose another with --label-column)"));
  }
}

// Distinct labels in the order of their classes.
std::vector<std::string> order_classes(const std::map<std::string, std::int64_t>& distinct) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : distinct) names.push_back(name);
  const auto number = [](const std::string& name) { return read_number<std::int64_t>(name); };
  if (std::all_of(names.begin(), names.end(),
                  [&](const std::string& name) { return number(name).has_value(); })) {
    std::stable_sort(names.begin(), names.end(),
                     [&](const std::string& a, const std::string& b) { return *number(a) < *number(b); });
  }
  return names;
}

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& path, const std::string& label_column) {
  CsvReader reader(text, guess_delimiter(text), path);
  CsvRow row;
  if (!reader.next(row)) throw DataError(str("'", path, "' is empty, expected rows of numbers and a label"));
  const std::size_t width = row.fields.size();
  if (width < 2) {
    throw DataError(str("'", path, "', line ", row.line,
                        ": one field, expected at least a number and a label, "
                        "separated by comma, tab or semicolon"));
  }
  const std::size_t label = find_label(row, label_column, path);
  CsvTable table;
  const bool header = is_header(row, label, label_column);
  for (std::size_t i = 0; i < width; ++i) {
    if (i != label) table.columns.push_back(header ? row.fields[i] : str("column ", i));
  }
  std::vector<std::string> labels;
  std::map<std::string, std::int64_t> classes;
  for (bool more = header ? reader.next(row) : true; more; more = reader.next(row)) {
    if (row.fields.size() != width) {
      throw DataError(
          str("'", path, "', line ", row.line, ": ", row.fields.size(), " fields, expected ", width));
    }
    std::size_t column = 0;
    for (std::size_t i = 0; i < width; ++i) {
      if (i == label) continue;
      const auto value = read_feature(row.fields[i]);
      if (!value) {
        throw DataError(str("'", path, "', line ", row.line, ", ", table.columns[column], ": '",
                            row.fields[i], "', expected a finite number"));
      }
      table.features.push_back(*value);
      ++column;
    }
    check_label(row, row.fields[label], path);
    classes.emplace(row.fields[label], 0);
    labels.push_back(row.fields[label]);
  }
  if (labels.empty())
    throw DataError(str("'", path, "', line 2: the file ends after its header, expected rows"));
  if (classes.size() < 2) {
    throw DataError(
        str("'", path, "': every label is '", labels.front(), "', expected at least two classes"));
  }
  table.class_names = order_classes(classes);
  for (std::size_t i = 0; i < table.class_names.size(); ++i) {
    classes[table.class_names[i]] = static_cast<std::int64_t>(i);
  }
  for (const std::string& name : labels) table.labels.push_back(classes[name]);
  return table;
}

}  // namespace rondo
