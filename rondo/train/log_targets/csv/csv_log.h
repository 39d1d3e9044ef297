#pragma once

#include "rondo/train/callbacks/epoch_rows.h"

namespace rondo {

// A CSV file with a row for every epoch: epoch, step, loss, learning_rate, samples, elapsed_s. If the first
// epoch has a validation, also validation_NAME of each metric.
class CsvLog final : public EpochRows {
 public:
  // The file is opened when training begins.
  explicit CsvLog(std::filesystem::path file) : EpochRows(std::move(file)) {}
  std::string name() const override { return "csv_log"; }  // name in checkpoints and messages

 protected:
  // See EpochRows.
  std::string header(const EpochRecord& record) const override;
  // Likewise.
  std::string line(const EpochRecord& record) const override;
  // Likewise.
  std::optional<std::int64_t> step_of(const std::string& line) const override;
};

}  // namespace rondo
