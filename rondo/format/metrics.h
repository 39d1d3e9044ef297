#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/format/file.h"

// metrics.jsonl: one JSON object a line, one line per rank and step, or in a long run per rank and some steps
// (thinned_metrics.h). What was not measured is left out of a line.
namespace rondo {

struct MetricsRow {
  int rank = 0;
  std::int64_t step = 0;   // optimizer steps finished, counted over the whole training, resumes included
  std::int64_t epoch = 0;  // from 0
  double elapsed_s = 0;    // wall time since training started; a resumed run goes on counting
  std::optional<double> loss;
  std::optional<double> validation_loss;  // only in rows of a validation pass
  std::optional<double> accuracy;
  std::optional<double> validation_accuracy;
  std::optional<double> learning_rate;
  std::optional<double> loss_scale;     // under a gradient scaler
  std::optional<double> tokens_per_s;   // of all ranks together
  std::optional<double> samples_per_s;  // of all ranks together
  std::optional<double> step_ms;
  std::optional<double> compute_ms;
  std::optional<double> comm_ms;          // time in which communication was under way
  std::optional<double> exposed_comm_ms;  // the part of it that computation waited for
  std::optional<std::uint64_t> peak_bytes;
  std::optional<std::uint64_t> peak_rss_bytes;
  std::optional<std::uint64_t> peak_pss_bytes;
  // Of a row for several steps, the last of which is `step`.
  std::optional<std::int64_t> steps;
  std::optional<double> smallest_loss;
  std::optional<double> largest_loss;
  std::optional<double> largest_step_ms;
  // Further numbers by key: "validation_<name>" of a trainer's metrics, "gradient_norm",
  // what modules count ("dropped_tokens").
  std::map<std::string, double> others = {};

  // Of a pass over the validation data, not of a step.
  bool is_validation() const;
};

// The row of a pass over the validation data, with its figures by name of metric.
MetricsRow validation_row(std::int64_t step, const std::map<std::string, double>& figures);

// The line of a row, without its end. A loss that is not finite becomes null, as JSON has no other word for
// it.
std::string to_json_line(const MetricsRow& row);

// Appends rows; each is in the file when append() returns, as a whole line. A line that a killed run left
// unfinished is ended first, so that it spoils no other. Not thread-safe.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& path);
  void append(const MetricsRow& row) { append(std::span(&row, 1)); }
  // All rows in one write.
  void append(std::span<const MetricsRow> rows);

 private:
  OutputFile file_;
};

struct MetricsFile {
  std::vector<MetricsRow> rows;       // of the file's lines, in order
  std::vector<std::string> problems;  // one for each line that is not a row: "metrics.jsonl:12: ..."
};

// A line of the file; empty for a blank one. Throws DataError for one that is not a row.
std::optional<MetricsRow> parse_metrics_line(std::string_view line);

// Reads what can be read: unknown keys whose values are no numbers are skipped, a damaged line is a problem
// and not the end. Throws DataError when the file cannot be opened.
MetricsFile read_metrics(const std::filesystem::path& path);

}  // namespace rondo
