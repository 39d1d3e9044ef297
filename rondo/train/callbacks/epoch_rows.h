#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "rondo/base/appended_output.h"
#include "rondo/train/callback.h"
#include "rondo/train/callbacks/side_output.h"

namespace rondo {

// A text file with a line for every epoch, on rank 0: what CsvLog and JsonLog have in common. A resumed run
// goes on in the same file; lines of epochs behind its first step, of a run that went on and died, go. A
// device or a named pipe is written as a stream.
class EpochRows : public Callback {
 public:
  // The file is opened when training begins.
  explicit EpochRows(std::filesystem::path file) : path_(std::move(file)) {}
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_epoch_end(Trainer& trainer, const EpochRecord& record) override;

 protected:
  // The first line for a new file, of an epoch of the kind, with its end; empty without one.
  virtual std::string header(const EpochRecord& record) const = 0;
  // The line of an epoch, without its end.
  virtual std::string line(const EpochRecord& record) const = 0;
  // The step of a line; empty for one that is no epoch's.
  virtual std::optional<std::int64_t> step_of(const std::string& line) const = 0;

 private:
  std::filesystem::path path_;
  std::optional<AppendedOutput> file_;  // on rank 0
  std::optional<SideOutput> output_;    // likewise
  bool is_new_ = false;
};

}  // namespace rondo
