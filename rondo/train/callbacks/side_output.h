#pragma once

#include <filesystem>
#include <functional>
#include <mutex>

namespace rondo {

// A file that a callback writes while training goes on: rows, events, a report. One rule holds for all of
// them: a file that cannot be opened when training begins is an error there; one that cannot be written later
// (a full disk, a folder that was removed or renamed) is a warning of the process that writes it, once until
// it can be written again, and training goes on, as with checkpoints (save_or_warn.h). Any thread.
class SideOutput {
 public:
  // `path` is the file or folder that exists after each write; empty where there is none to look at.
  explicit SideOutput(std::filesystem::path path) : path_(std::move(path)) {}

  // Runs `action`, which writes and does not communicate. Returns whether it succeeded and the path still
  // exists; warns otherwise. Throws what is neither a rondo::Error nor an error of the system.
  bool write(const std::function<void()>& action);

 private:
  bool report(const std::string& problem);

  std::filesystem::path path_;
  std::mutex mutex_;      // protects failing_
  bool failing_ = false;  // the last write failed, and that was said
};

}  // namespace rondo
