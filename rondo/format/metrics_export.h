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

// What rows say, in Prometheus' text format (version 0.0.4): a gauge for each figure, its unit in its name,
// "rondo_step_seconds{rank=\"1\"} 0.123". Figures that ranks have each for itself carry the rank. `of_step`:
// rows of all ranks of one step; `validation`: the newest.
std::string prometheus_text(std::span<const MetricsRow> of_step, const std::optional<MetricsRow>& validation);

// MLflow's folders of runs ("file store"): DIRECTORY/0/RUN_ID with meta.yaml, params/, metrics/, tags/,
// artifacts/. `mlflow migrate-filestore` reads them into a database; older MLflow opens them as they are.

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

// TensorBoard's event files: records of {length, masked CRC, data, masked CRC} (TFRecord), each an Event
// message in protobuf encoding. Written by hand, because libtorch exports protobuf symbols and a second
// protobuf would clash.

// CRC-32C (Castagnoli), as TFRecord uses it before masking.
std::uint32_t crc32c(std::span<const std::byte> data);

// `data` with TFRecord's frame around it.
std::string tfrecord(std::string_view data);

// How numbers are spread, as TensorBoard draws it: counts[i] of them lie above limits[i - 1] and not above
// limits[i]; the first bucket begins at `min`.
struct Histogram {
  double min = 0, max = 0;
  double count = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits, counts;
};

// Writes DIRECTORY/events.out.tfevents.SECONDS.HOST.PID, which `tensorboard --logdir DIRECTORY` shows. Not
// thread-safe.
class EventWriter {
 public:
  // `wall_time` is in seconds since 1970.
  EventWriter(const std::filesystem::path& directory, double wall_time);
  void add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time);
  // Several of one step, in one write.
  void add_scalars(std::span<const std::pair<std::string, double>> values, std::int64_t step,
                   double wall_time);
  void add_histogram(std::string_view tag, const Histogram& histogram, std::int64_t step, double wall_time);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace rondo
