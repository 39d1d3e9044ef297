#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/csv.h"
#include "rondo/data/csv_reader.h"
#include "rondo/data/mapped_input.h"

namespace rondo {
namespace {

constexpr std::int64_t kUnknownClass = -100;  // asks for no prediction (kIgnoredTarget of nn/loss.h)

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

// `label` is the number of fields where the table has no labels.
bool is_header(const CsvRow& row, std::size_t label, const std::string& wanted) {
  const bool labelled = label < row.fields.size();
  if (labelled && !read_number<std::size_t>(wanted) && row.fields[label] == wanted) return true;
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
                        "is not a label; choose another column (--label-column))"));
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

std::map<std::string, std::int64_t> numbered(const std::vector<std::string>& names) {
  std::map<std::string, std::int64_t> numbers;
  for (const std::string& name : names) numbers.emplace(name, static_cast<std::int64_t>(numbers.size()));
  return numbers;
}

// As parse_csv(), and all labels may be the same.
CsvTable parse_table(std::string_view text, const std::string& path, const std::string& label_column,
                     CsvLabels reading, const KnownData& known) {
  CsvReader reader(text, guess_delimiter(text), path);
  CsvRow row;
  if (!reader.next(row)) throw DataError(str("'", path, "' is empty, expected rows of numbers and a label"));
  const bool labelled = reading != CsvLabels::none;
  const std::size_t width = row.fields.size();
  if (labelled && width < 2) {
    throw DataError(str("'", path, "', line ", row.line,
                        ": one field, expected at least a number and a label, "
                        "separated by comma, tab or semicolon"));
  }
  const std::size_t label = labelled ? find_label(row, label_column, path) : width;
  CsvTable table;
  // A number to predict is a column like the others.
  const bool named_number =
      reading == CsvLabels::numbers && !row.fields[label].empty() && !read_number<float>(row.fields[label]);
  const bool header = named_number || is_header(row, label, label_column);
  for (std::size_t i = 0; i < width; ++i) {
    if (i != label) table.columns.push_back(header ? row.fields[i] : str("column ", i));
  }
  std::vector<std::string> labels;
  std::map<std::string, std::int64_t> classes = numbered(known.class_names);
  const auto number_in = [&](std::size_t column, const std::string& name) {
    const auto value = read_feature(row.fields[column]);
    if (!value)
      throw DataError(str("'", path, "', line ", row.line, ", ", name, ": '", row.fields[column],
                          "', expected a finite number"));
    return *value;
  };
  for (bool more = header ? reader.next(row) : true; more; more = reader.next(row)) {
    if (row.fields.size() != width) {
      throw DataError(
          str("'", path, "', line ", row.line, ": ", row.fields.size(), " fields, expected ", width));
    }
    std::size_t column = 0;
    for (std::size_t i = 0; i < width; ++i) {
      if (i != label) table.features.push_back(number_in(i, table.columns[column++]));
    }
    if (!labelled) {
      table.labels.push_back(kUnknownClass);
    } else if (reading == CsvLabels::numbers) {
      table.numbers.push_back(number_in(label, "the number to predict"));
    } else {
      const std::string& name = row.fields[label];
      check_label(row, name, path);
      if (!known.class_names.empty() && !classes.contains(name))
        throw DataError(str("'", path, "', line ", row.line, ": ", unknown_class(known, name)));
      classes.emplace(name, 0);
      labels.push_back(name);
    }
  }
  if (labels.empty() && table.rows() == 0)
    throw DataError(str("'", path, "', line 2: the file ends after its header, expected rows"));
  if (reading != CsvLabels::classes) return table;
  table.class_names = known.class_names.empty() ? order_classes(classes) : known.class_names;
  classes = numbered(table.class_names);
  for (const std::string& name : labels) table.labels.push_back(classes[name]);
  return table;
}

void check_two_classes(const CsvTable& table, const std::string& path) {
  if (table.class_names.size() >= 2) return;
  throw DataError(
      str("'", path, "': every label is '", table.class_names.front(), "', expected at least two classes"));
}

// Puts the rows of `other`, whose classes may be others, behind those of `table`.
void append_rows(CsvTable& table, CsvTable&& other) {
  if (table.class_names != other.class_names) {
    std::map<std::string, std::int64_t> all = numbered(table.class_names);
    for (const std::string& name : other.class_names) all.emplace(name, 0);
    const std::vector<std::string> joint = order_classes(all);
    all = numbered(joint);
    const auto renumber = [&](CsvTable& of) {
      for (std::int64_t& label : of.labels) label = all.at(of.class_names[static_cast<std::size_t>(label)]);
    };
    renumber(table);
    renumber(other);
    table.class_names = joint;
  }
  table.features.insert(table.features.end(), other.features.begin(), other.features.end());
  table.labels.insert(table.labels.end(), other.labels.begin(), other.labels.end());
  table.numbers.insert(table.numbers.end(), other.numbers.begin(), other.numbers.end());
}

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& path, const std::string& label_column,
                   CsvLabels reading, const KnownData& known) {
  CsvTable table = parse_table(text, path, label_column, reading, known);
  if (reading == CsvLabels::classes && known.class_names.empty()) check_two_classes(table, path);
  return table;
}

CsvTable read_csv_files(const std::vector<std::string>& paths, const std::string& label_column,
                        CsvLabels reading, const KnownData& known, std::vector<std::int64_t>& starts) {
  CsvTable all;
  starts = {0};
  for (const std::string& path : paths) {
    const MappedInput file(path);
    CsvTable table = parse_table(file.text(), path, label_column, reading, known);
    if (starts.size() == 1) {
      all = std::move(table);
    } else {
      if (table.columns != all.columns) {
        throw DataError(str("'", path, "' has the features ", join(table.columns, ", "), ", '", paths.front(),
                            "' ", join(all.columns, ", "), "; expected the same columns in all files"));
      }
      append_rows(all, std::move(table));
    }
    starts.push_back(all.rows());
  }
  if (reading == CsvLabels::classes && known.class_names.empty())
    check_two_classes(all, paths.size() == 1 ? paths.front() : str(paths.front(), "' to '", paths.back()));
  return all;
}

std::size_t csv_width(std::string_view text, const std::string& path) {
  CsvReader reader(text, guess_delimiter(text), path);
  CsvRow row;
  return reader.next(row) ? row.fields.size() : 0;
}

}  // namespace rondo
