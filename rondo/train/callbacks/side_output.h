#pragma once

#include <filesystem>
#include <functional>
#include <mutex>

namespace rondo {

// A file that a callback writes during training: rows, events, a report. If it cannot be opened when training
// begins, that is an error. If a later write fails (a full disk, a folder that was removed or renamed), the
// writing process logs one warning until writing works again. Training continues, as for checkpoints
// (save_or_warn.h). Any thread.
class SideOutput {
 public:
  // `path` is the file or folder that must exist after each write; empty: no check.
  explicit SideOutput(std::filesystem::path path) : path_(std::move(path)) {}

  // Runs `action`, which writes and does not communicate. Returns whether it succeeded and the path still
  // exists; logs a warning otherwise. Rethrows exceptions other than rondo::Error and std::system_error.
  bool write(const std::function<void()>& action);

 private:
  bool report(const std::string& problem);

  std::filesystem::path path_;
  std::mutex mutex_;      // protects failing_
  bool failing_ = false;  // whether the last write failed with a warning
};

}  // namespace rondo
