#pragma once

#include <filesystem>
#include <string>

namespace rondo {

// A run directory for one writer: a lock of an open file (F_OFD_SETLK) on RUN/run.lock, held as long as the
// object lives and released by the kernel when its process dies. Who only reads asks for nothing and is not
// kept out.
class RunLock {
 public:
  // Makes the directory when it is missing. Throws UsageError naming the process that has it, Error when the
  // directory or the file cannot be made. On a file system without locks a warning is logged instead.
  explicit RunLock(std::filesystem::path run_directory);
  // Removes the file, and the directory if the object made it and nothing has been put into it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Whether a process holds it now, found out without taking it; where the file system has no locks, whether
  // the file is there.
  static bool is_held(const std::filesystem::path& run_directory);

  static constexpr const char* file_name = "run.lock";

 private:
  bool try_open();

  std::filesystem::path directory_;
  bool made_directory_ = false;
  int descriptor_ = -1;
};

}  // namespace rondo
