#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "rondo/base/appended_output.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"

namespace rondo {

// A text file with a line for every epoch, on rank 0: the base of CsvLog and JsonLog. A resumed run appends
// to the same file, and removes lines of epochs after its first step, which an earlier run wrote before it
// died. Writes a device or a named pipe as a stream.
class EpochRows : public Callback {
 public:
  // The file is opened when training begins.
  explicit EpochRows(std::filesystem::path file) : path_(std::move(file)) {}
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;

 protected:
  // Returns the header line of a new file, including the newline, for epochs like `record`; empty without a
  // header.
  virtual std::string header(const EpochRecord& record) const = 0;
  // Returns the line of an epoch, without the newline.
  virtual std::string line(const EpochRecord& record) const = 0;
  // Returns the step of a line; empty if the line is no epoch's.
  virtual std::optional<std::int64_t> step_of(const std::string& line) const = 0;

 private:
  std::filesystem::path path_;
  std::optional<AppendedOutput> file_;  // on rank 0
  std::optional<SideOutput> output_;    // likewise
  bool is_new_ = false;
};

}  // namespace rondo
