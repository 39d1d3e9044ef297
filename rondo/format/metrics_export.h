#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rondo/format/file.h"
#include "rondo/format/metrics.h"

namespace rondo {

// Returns the rows in Prometheus' text format (version 0.0.4): a gauge for each figure with the unit in its
// name, "rondo_step_seconds{rank=\"1\"} 0.123". Figures that differ between ranks have a rank label.
// `of_step` holds the rows of all ranks of one step, `validation` the newest validation row.
std::string prometheus_text(std::span<const MetricsRow> of_step, const std::optional<MetricsRow>& validation);

// Runs in MLflow's "file store": DIRECTORY/0/RUN_ID with meta.yaml, params/, metrics/, tags/, artifacts/.
// `mlflow migrate-filestore` imports it into a database; older versions of MLflow open it directly.

// Returns milliseconds since 1970, MLflow's unit of time.
std::int64_t mlflow_time();

// A run in MLflow's experiment "Default". Not thread-safe.
class MlflowRun {
 public:
  enum class Status { running = 1, finished = 3, failed = 4, killed = 5 };

  // Creates the experiment if it is missing, and the run. An empty `run_id` creates a new run. An existing
  // run is continued after dropping its metrics of steps after `first_step`.
  MlflowRun(const std::filesystem::path& directory, const std::string& run_id, const std::string& name,
            std::int64_t first_step);

  const std::string& id() const { return id_; }
  const std::filesystem::path& path() const { return path_; }
  // Sets parameters; values are truncated to MLflow's limit of 6000 bytes.
  void set_parameters(const std::map<std::string, std::string>& parameters);
  // Appends a value. Allowed characters in names are letters, digits, '_', '-', '.', ' ' and '/'; others
  // become '_'.
  void log_metric(const std::string& name, double value, std::int64_t step, std::int64_t time);
  void set_status(Status status);

 private:
  std::string id_, name_;
  std::filesystem::path path_;
  std::int64_t start_time_ = 0;
  std::map<std::string, OutputFile> metrics_;  // open files, by name
};

// TensorBoard's event files: records {length, masked CRC, data, masked CRC} (TFRecord), each with an Event
// message in protobuf encoding. The encoder is custom, because libtorch exports protobuf symbols and a second
// protobuf would clash.

// Returns the CRC-32C (Castagnoli) that TFRecord uses before masking.
std::uint32_t crc32c(std::span<const std::byte> data);

// Returns `data` with TFRecord's framing.
std::string tfrecord(std::string_view data);

// A histogram for TensorBoard: counts[i] values are above limits[i - 1] and at most limits[i]; the first
// bucket begins at `min`.
struct Histogram {
  double min = 0, max = 0;
  double count = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits, counts;
};

// A writer of DIRECTORY/events.out.tfevents.SECONDS.HOST.PID, for `tensorboard --logdir DIRECTORY`. Not
// thread-safe.
class EventWriter {
 public:
  // `wall_time` is in seconds since 1970.
  EventWriter(const std::filesystem::path& directory, double wall_time);
  void add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time);
  // Writes several scalars of one step in one write.
  void add_scalars(std::span<const std::pair<std::string, double>> values, std::int64_t step,
                   double wall_time);
  void add_histogram(std::string_view tag, const Histogram& histogram, std::int64_t step, double wall_time);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace rondo
