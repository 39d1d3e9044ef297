#include "rondo/data/csv.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/data/csv_reader.h"
#include "rondo/data/mapped_input.h"
#include "rondo/data/subset.h"
#include "rondo/data/text_files.h"

namespace rondo {
namespace {

class TableDataset final : public Dataset {
 public:
  TableDataset(CsvTable table, std::string source) : table_(std::move(table)) {
    info_ = {.kind = "csv",
             .source = std::move(source),
             .input_shape = {static_cast<std::int64_t>(table_.columns.size())},
             .classes = static_cast<std::int64_t>(table_.class_names.size()),
             .class_names = table_.class_names};
  }
  std::int64_t size() const override { return table_.rows(); }
  const DatasetInfo& info() const override { return info_; }

  Batch get(std::span<const std::int64_t> indices) const override {
    check_indices(indices, size());
    const auto samples = static_cast<std::int64_t>(indices.size());
    const auto columns = static_cast<std::int64_t>(table_.columns.size());
    Batch batch{.input = at::empty({samples, columns}, at::kFloat),
                .target = at::empty({samples}, at::kLong),
                .samples = samples};
    auto* input = batch.input.mutable_data_ptr<float>();
    auto* target = batch.target.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      std::copy_n(table_.features.begin() + index * columns, columns, input);
      input += columns;
      *target++ = table_.labels[static_cast<std::size_t>(index)];
    }
    return batch;
  }

 private:
  CsvTable table_;
  DatasetInfo info_;
};

// Brings every column to mean 0 and deviation 1 over the rows `train`; the others get the same change, so
// that nothing of the validation rows leaks into training.
void standardise(CsvTable& table, const std::vector<std::int64_t>& train) {
  const std::size_t columns = table.columns.size();
  const auto count = static_cast<double>(train.size());
  for (std::size_t column = 0; column < columns; ++column) {
    const auto value = [&](std::int64_t row) -> float& {
      return table.features[static_cast<std::size_t>(row) * columns + column];
    };
    double mean = 0, variance = 0;
    for (const std::int64_t row : train) mean += value(row);
    mean /= count;  // after adding up, which is exact: a constant column becomes exactly 0
    for (const std::int64_t row : train) variance += (value(row) - mean) * (value(row) - mean) / count;
    const double deviation = variance > 0 ? std::sqrt(variance) : 1.0;
    for (std::int64_t row = 0; row < table.rows(); ++row) {
      value(row) = static_cast<float>((value(row) - mean) / deviation);
    }
  }
}

OpenedData open_csv(const std::string& path, const DataOptions& options) {
  check_validation_fraction(options.validation_fraction);
  const MappedInput file(path);
  CsvTable table = parse_csv(file.text(), path, options.label_column);
  SplitIndices split = split_indices(table.rows(), options.validation_fraction, options.split_seed);
  standardise(table, split.train);
  const auto all = std::make_shared<TableDataset>(std::move(table), path);
  OpenedData opened{
      .kind = "csv", .train = std::make_shared<Subset>(all, std::move(split.train)), .validation = {}};
  if (!split.validation.empty())
    opened.validation = std::make_shared<Subset>(all, std::move(split.validation));
  return opened;
}

bool ends_with_any(const std::string& text, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](const char* ending) { return text.ends_with(ending); });
}

// By the file's ending, or when its first lines read as a table. Prose rarely has lines of equally many
// fields that are numbers in all columns but one.
bool detect_csv(const std::string& path) {
  if (std::filesystem::is_directory(path)) return false;
  const MappedInput file(path);
  std::string_view head = file.text().substr(0, 65536);
  if (!looks_like_text(head)) return false;
  if (ends_with_any(path, {".csv", ".tsv", ".CSV", ".TSV"})) return true;
  // The last line of the part may be cut off.
  if (head.size() < file.text().size()) head = head.substr(0, head.rfind('\n') + 1);
  try {
    return parse_csv(head, path, "").rows() >= 2;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

DataKind csv_kind() { return {"csv", detect_csv, open_csv}; }

}  // namespace rondo
