#include "rondo/data/csv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/csv_reader.h"
#include "rondo/data/data_files.h"
#include "rondo/data/mapped_input.h"
#include "rondo/data/subset.h"
#include "rondo/data/text_files.h"

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
  CsvTable table_;                    // without its features
  std::vector<float> features_;       // standardised, rows x columns
  std::vector<std::int64_t> starts_;  // the first row of each file, and the number of rows
  DatasetInfo info_;
};

// Mean and deviation of every column over the rows `train`; the others get the same change, so that nothing
// of the validation rows leaks into training. Differences to the first row are added up, so a constant column
// becomes exactly 0, and they are scaled, so that no square leaves the range of a double.
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
    // Differences in the last bits are roundings of one number.
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

// The file, or those of a folder that holds nothing else but hidden ones, sorted; otherwise none.
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
    throw DataError(str("'", path, "' has ", table.columns.size(), " features, ", who_knows(known), " knows ",
                        known.mean.size()));
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

// By the file's ending, or when its first lines read as a table. Prose rarely has lines of equally many
// fields that are numbers in all columns but one.
bool detect_csv(const std::string& path) {
  if (std::filesystem::is_directory(path)) return !table_files(path).empty();
  const MappedInput file(path);
  std::string_view head = file.text().substr(0, 65536);
  if (!looks_like_text(head)) return false;
  if (is_named_as_table(path)) return true;
  // The last line of the part may be cut off.
  if (head.size() < file.text().size()) head = head.substr(0, head.rfind('\n') + 1);
  try {
    return looks_like_table(head);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

// Numbers may also be classes, so regression is never guessed.
bool CsvKind::detect(const std::string& name, const std::string& path) {
  return name == "csv" && detect_csv(path);
}

OpenedData CsvKind::open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own) {
  return open_table(name, path, options, own.label_column);
}

}  // namespace rondo
