#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rondo {

// Returns whether a training has written into the folder: it contains the config.json of a run, run.json or
// checkpoints.
bool holds_run(const std::filesystem::path& directory);

// Throws UsageError for a folder with files but no run, naming some of them: a run would replace files with
// the same names. Hidden files, and files that precede a run (a lock, measurements, a plan), are allowed.
void refuse_foreign_folder(const std::filesystem::path& directory);

// Returns "runs/<time>-<model>" for the current time.
std::string default_run_directory(const std::string& model);

// The directory of a run without a given one; unique to the run.
class NewRunDirectory {
 public:
  // Creates default_run_directory(). If that exists, for instance from a run that began in the same second,
  // appends the first of "-2", "-3", ... that is free. Throws Error if none can be created.
  explicit NewRunDirectory(const std::string& model);
  // Removes the directory if it is empty, and then its parent if the constructor created it.
  ~NewRunDirectory();
  NewRunDirectory(const NewRunDirectory&) = delete;
  NewRunDirectory& operator=(const NewRunDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path made_parent_;  // empty: the parent existed
};

}  // namespace rondo
