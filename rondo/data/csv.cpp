#include "rondo/data/csv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/csv_reader.h"
#include "rondo/data/data_files.h"
#include "rondo/data/subset.h"
#include "rondo/data/text.h"

namespace rondo {
namespace {

class TableDataset final : public Dataset, public DataFiles {
 public:
  TableDataset(CsvTable table, std::vector<float> features, std::vector<std::int64_t> starts,
               std::string source, const std::string& kind, const KnownData& known)
      : table_(std::move(table)), features_(std::move(features)), starts_(std::move(starts)) {
    table_.features = {};
    info_ = {.kind = kind,
             .source = std::move(source),
             .input_shape = {static_cast<std::int64_t>(table_.columns.size())},
             .classes = static_cast<std::int64_t>(known.class_names.size()),
             .class_names = known.class_names,
             .mean = known.mean,
             .deviation = known.deviation};
  }
  std::int64_t size() const override { return table_.rows(); }
  const DatasetInfo& info() const override { return info_; }
  std::vector<std::int64_t> file_starts() const override { return starts_; }

  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size());
    const auto samples = static_cast<std::int64_t>(indices.size());
    const auto columns = static_cast<std::int64_t>(table_.columns.size());
    Batch batch{.inputs = {at::empty({samples, columns}, at::kFloat)}, .targets = {}, .samples = samples};
    auto* input = batch.inputs[0].mutable_data_ptr<float>();
    for (const std::int64_t index : indices) {
      std::copy_n(features_.begin() + index * columns, columns, input);
      input += columns;
    }
    const auto take = [&](const auto& values, auto* target) {
      for (const std::int64_t index : indices) *target++ = values[static_cast<std::size_t>(index)];
    };
    if (table_.numbers.empty()) {
      batch.targets = {at::empty({samples}, at::kLong)};
      take(table_.labels, batch.targets[0].mutable_data_ptr<std::int64_t>());
    } else {
      batch.targets = {at::empty({samples, 1}, at::kFloat)};
      take(table_.numbers, batch.targets[0].mutable_data_ptr<float>());
    }
    return batch;
  }

 private:
  CsvTable table_;                    // without the features
  std::vector<float> features_;       // standardised, rows x columns
  std::vector<std::int64_t> starts_;  // first row of each file, then the number of rows
  DatasetInfo info_;
};

// Computes mean and deviation of every column over the rows `train` only, so that the validation rows do not
// leak into training. Adds up differences to the first row, so that a constant column becomes exactly 0.
// Scales them, so that no square overflows a double.
void measure_columns(const CsvTable& table, const std::vector<std::int64_t>& train, const std::string& path,
                     KnownData& known) {
  const std::size_t columns = table.columns.size();
  const auto count = static_cast<double>(train.size());
  for (std::size_t column = 0; column < columns; ++column) {
    const auto value = [&](std::int64_t row) {
      return table.features[static_cast<std::size_t>(row) * columns + column];
    };
    const double first = value(train.front());
    double sum = 0, widest = 0, variance = 0;
    for (const std::int64_t row : train) sum += value(row) - first;
    const double mean = first + sum / count;
    for (const std::int64_t row : train) widest = std::max(widest, std::abs(value(row) - mean));
    if (!std::isfinite(mean) || !std::isfinite(widest)) {
      throw DataError(str("'", path, "', ", table.columns[column],
                          ": the numbers are too large for the mean and deviation of the column"));
    }
    // Values that differ only in their last bits are equal apart from rounding errors.
    if (widest <= 8 * std::numeric_limits<double>::epsilon() * std::abs(mean)) widest = 0;
    for (const std::int64_t row : train) {
      const double part = widest > 0 ? (value(row) - mean) / widest : 0.0;
      variance += part * part / count;
    }
    known.mean.push_back(mean);
    known.deviation.push_back(widest > 0 ? widest * std::sqrt(variance) : 1.0);
  }
}

std::vector<float> standardised(const CsvTable& table, const std::string& path, const KnownData& known) {
  const std::size_t columns = table.columns.size();
  std::vector<float> features(table.features.size());
  for (std::size_t i = 0; i < features.size(); ++i) {
    const std::size_t column = i % columns;
    const double value = (table.features[i] - known.mean[column]) / known.deviation[column];
    if (!(std::abs(value) <= std::numeric_limits<float>::max())) {
      throw DataError(str("'", path, "', row ", i / columns + 1, ", ", table.columns[column], ": ",
                          table.features[i], " is too far from the mean of the training rows, ",
                          known.mean[column], ", for float32"));
    }
    features[i] = static_cast<float>(value);
  }
  return features;
}

bool ends_with_any(const std::string& text, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const char* ending) { return text.ends_with(ending); });
}

bool is_named_as_table(const std::string& path) {
  return ends_with_any(path, {".csv", ".tsv", ".CSV", ".TSV"});
}

// Returns the file, or the sorted files of a folder that contains only tables and hidden files; otherwise
// none.
std::vector<std::string> table_files(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> found;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    if (!entry.is_regular_file() || !is_named_as_table(entry.path().string())) return {};
    found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

OpenedData open_table(const std::string& kind, const std::string& path, const DataOptions& options,
                      const std::string& label_column) {
  check_validation_fraction(options.validation_fraction);
  const std::vector<std::string> files = table_files(path);
  if (files.empty()) {
    throw DataError(str("'", path,
                        "' is a folder with more than tables, expected a regular file, or a folder of files "
                        "named *.csv or *.tsv"));
  }
  CsvLabels labels = kind == "regression" ? CsvLabels::numbers : CsvLabels::classes;
  KnownData known = options.known;
  if (!known.mean.empty() && csv_width(MappedInput(files.front()).text(), path) == known.mean.size())
    labels = CsvLabels::none;
  std::vector<std::int64_t> starts;
  CsvTable table = read_csv_files(files, label_column, labels, known, starts);
  if (!known.mean.empty() && table.columns.size() != known.mean.size())
    throw DataError(str("'", path, "' has ", table.columns.size(), " features, ", source_of_properties(known),
                        " knows ", known.mean.size()));
  SplitIndices split = split_indices(table.rows(), options.validation_fraction, options.split_seed);
  if (known.mean.empty()) measure_columns(table, split.train, path, known);
  if (labels == CsvLabels::classes) known.class_names = table.class_names;
  std::vector<float> features = standardised(table, path, known);
  const auto all = std::make_shared<TableDataset>(std::move(table), std::move(features), std::move(starts),
                                                  path, kind, known);
  OpenedData opened{
      .kind = kind, .train = std::make_shared<Subset>(all, std::move(split.train)), .validation = {}};
  if (!split.validation.empty())
    opened.validation = std::make_shared<Subset>(all, std::move(split.validation));
  return opened;
}

// Detects a table by the file's extension or its first lines. Prose rarely has lines with equally many fields
// that are numbers in all columns but one.
bool detect_csv(const std::string& path) {
  if (std::filesystem::is_directory(path)) return !table_files(path).empty();
  const MappedInput file(path);
  std::string_view head = file.text().substr(0, 65536);
  if (!looks_like_text(head)) return false;
  if (is_named_as_table(path)) return true;
  // The last line of the part may be truncated.
  if (head.size() < file.text().size()) head = head.substr(0, head.rfind('\n') + 1);
  try {
    return looks_like_table(head);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

// Numbers may also be classes, so regression is never detected.
bool CsvKind::detect(const std::string& name, const std::string& path) {
  return name == "csv" && detect_csv(path);
}

OpenedData CsvKind::open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own) {
  return open_table(name, path, options, own.label_column);
}

namespace {

constexpr std::int64_t kUnknownClass = -100;  // requests no prediction (kIgnoredTarget of nn/loss.h)

std::optional<std::int64_t> read_whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// Returns the column number in the text; empty if it is not a number.
std::optional<std::size_t> read_column(const std::string& text) {
  const auto number = read_whole_number(text);
  return number && *number >= 0 ? std::optional(static_cast<std::size_t>(*number)) : std::nullopt;
}

// Returns the position of the label: by name, by number, or the last column.
std::size_t find_label(const CsvRow& first, const std::string& wanted, const std::string& path) {
  if (wanted.empty()) return first.fields.size() - 1;
  // A label column given in digits is always a number, because a name in digits could be the first value of
  // an unnamed column.
  if (const auto number = read_column(wanted)) {
    if (*number < first.fields.size()) return *number;
  } else {
    const auto named = std::find(first.fields.begin(), first.fields.end(), wanted);
    if (named != first.fields.end()) return static_cast<std::size_t>(named - first.fields.begin());
  }
  throw UsageError(str("'", path, "' has no label column '", wanted, "', expected one of ",
                       join(first.fields, ", "), " or a number from 0 to ", first.fields.size() - 1));
}

void check_label(const CsvRow& row, const std::string& label, const std::string& path) {
  const auto at = [&] { return str("'", path, "', line ", row.line, ": "); };
  if (label.empty()) throw DataError(str(at(), "no label, expected a class"));
  if (const auto number = read_csv_number(label); number && *number != std::floor(*number)) {
    throw DataError(str(at(), "label ", label,
                        ", expected a class: a whole number or a name (a column of measurements "
                        "is not a label; choose another column (--label-column))"));
  }
}

// Returns the number as float32, the dtype of the prediction.
float predicted_number(double number, const CsvRow& row, const std::string& path) {
  if (std::abs(number) <= std::numeric_limits<float>::max()) return static_cast<float>(number);
  throw DataError(str("'", path, "', line ", row.line, ": the number to predict is ", number,
                      ", expected one within float32"));
}

// Returns the distinct labels in the order of their classes.
std::vector<std::string> order_classes(const std::map<std::string, std::int64_t>& distinct) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : distinct) names.push_back(name);
  const auto number = [](const std::string& name) { return read_whole_number(name); };
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

// Like parse_csv(), but all labels may be equal.
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
  const bool is_named_label =
      labelled && !label_column.empty() && !read_column(label_column) && row.fields[label] == label_column;
  const FirstRow first = judge_first_row(row, label, is_named_label, reading, known, reader);
  if (first == FirstRow::unclear) throw DataError(unclear_first_row(row, path));
  const bool header = first == FirstRow::names;
  for (std::size_t i = 0; i < width; ++i) {
    if (i != label) table.columns.push_back(header ? row.fields[i] : str("column ", i));
  }
  std::vector<std::string> labels;
  std::map<std::string, std::int64_t> classes = numbered(known.class_names);
  const auto number_in = [&](std::size_t column, const std::string& name) {
    const std::string& field = row.fields[column];
    const auto value = read_csv_number(field);
    if (!value || !std::isfinite(*value))
      throw DataError(str("'", path, "', line ", row.line, ", ", name, ": '", field,
                          "', expected a finite number",
                          has_decimal_comma(field) ? " with a decimal point, not a comma" : ""));
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
      table.numbers.push_back(predicted_number(number_in(label, "the number to predict"), row, path));
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

// Appends the rows of `other`, whose classes may differ.
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

bool looks_like_table(std::string_view head) {
  CsvReader reader(head, guess_delimiter(head), "");
  CsvRow row;
  if (!reader.next(row) || row.fields.size() < 2) return false;
  const std::size_t width = row.fields.size();
  std::vector<std::vector<bool>> numeric;
  std::vector<std::int64_t> numbers(width);
  std::size_t others = 0;  // later rows with another number of fields
  bool is_first = true;
  do {
    if (row.fields.size() == width) {
      std::vector<bool>& fields = numeric.emplace_back();
      for (const std::string& field : row.fields)
        fields.push_back(read_csv_number(field) || has_decimal_comma(field));
      for (std::size_t i = 0; i < width && !is_first; ++i) numbers[i] += fields[i] ? 1 : 0;
    } else {
      ++others;
    }
    is_first = false;
  } while (reader.next(row));
  // The column with the fewest numbers may hold the labels.
  const auto label = static_cast<std::size_t>(std::min_element(numbers.rbegin(), numbers.rend()).base() -
                                              numbers.begin() - 1);
  const auto is_row = [&](std::vector<bool> fields) {
    fields[label] = true;
    return std::find(fields.begin(), fields.end(), false) == fields.end();
  };
  const auto rows = static_cast<std::size_t>(std::count_if(numeric.begin(), numeric.end(), is_row));
  const std::size_t damaged = numeric.size() + others - rows - (is_row(numeric.front()) ? 0 : 1);
  return rows >= 2 && damaged <= std::max<std::size_t>(1, rows / 10);
}

std::size_t csv_width(std::string_view text, const std::string& path) {
  CsvReader reader(text, guess_delimiter(text), path);
  CsvRow row;
  return reader.next(row) ? row.fields.size() : 0;
}

}  // namespace rondo
