#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "rondo/format/file.h"

// MLflow's folders of runs ("file store"): DIRECTORY/0/RUN_ID with meta.yaml, params/, metrics/, tags/,
// artifacts/. `mlflow migrate-filestore` reads them into a database; older MLflow opens them as they are.
namespace rondo {

// Milliseconds since 1970, as MLflow counts time.
std::int64_t mlflow_time();

// A run in MLflow's experiment "Default". Not thread-safe.
class MlflowRun {
 public:
  enum class Status { running = 1, finished = 3, failed = 4, killed = 5 };

  // Makes the experiment where it is missing, and the run. An empty `run_id` makes a new one; one that is
  // there is gone on with: what it has of metrics behind `first_step` goes.
  MlflowRun(const std::filesystem::path& directory, const std::string& run_id, const std::string& name,
            std::int64_t first_step);

  const std::string& id() const { return id_; }
  const std::filesystem::path& path() const { return path_; }
  // Values beyond MLflow's limit of 6000 bytes are cut.
  void set_parameters(const std::map<std::string, std::string>& parameters);
  // Names have letters, digits, '_', '-', '.', ' ' and '/'; other characters become '_'.
  void log_metric(const std::string& name, double value, std::int64_t step, std::int64_t time);
  void set_status(Status status);

 private:
  std::string id_, name_;
  std::filesystem::path path_;
  std::int64_t start_time_ = 0;
  std::map<std::string, OutputFile> metrics_;  // open, by name
};

}  // namespace rondo
