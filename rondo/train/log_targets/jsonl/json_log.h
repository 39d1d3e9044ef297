#pragma once

#include "rondo/train/callbacks/epoch_rows.h"

namespace rondo {

// A file with one JSON object per line for every epoch: {"epoch", "step", "loss", "learning_rate", "samples",
// "elapsed_s", "validation": {name: value}}. Non-finite values are null.
class JsonLog final : public EpochRows {
 public:
  // The file is opened when training begins.
  explicit JsonLog(std::filesystem::path file) : EpochRows(std::move(file)) {}
  std::string name() const override { return "json_log"; }  // name in checkpoints and messages

 protected:
  // See EpochRows.
  std::string header(const EpochRecord&) const override { return {}; }
  // Likewise.
  std::string line(const EpochRecord& record) const override;
  // Likewise.
  std::optional<std::int64_t> step_of(const std::string& line) const override;
};

}  // namespace rondo
