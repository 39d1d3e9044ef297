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
#include "rondo/format/metrics_row.h"

namespace rondo {

// The file metrics.jsonl: one JSON object per line for each rank and step, or in a long run for each rank and
// several steps (ThinnedMetricsWriter). Missing measurements are omitted.

// Returns the row of a validation pass with its figures by metric name.
MetricsRow validation_row(std::int64_t step, const std::map<std::string, double>& figures);

// Returns the line of a row without the line end. A loss that is not finite becomes null, because JSON cannot
// represent it.
std::string to_json_line(const MetricsRow& row);

// A writer that appends rows. Each row is in the file as a whole line when append() returns, and none of them
// if append() throws. First ends an incomplete line that a killed run left behind. Not thread-safe.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& path);
  void append(const MetricsRow& row) { append(std::span(&row, 1)); }
  // Writes all rows in one write.
  void append(std::span<const MetricsRow> rows);

 private:
  OutputFile file_;
};

struct MetricsFile {
  std::vector<MetricsRow> rows;       // rows of the file, in order
  std::vector<std::string> problems;  // one for each invalid line: "metrics.jsonl:12: ..."
  // Whether the last problem is a line without an end, which a running training may be writing.
  bool has_partial_line = false;
};

// Parses a line; empty for a blank one. Throws DataError for an invalid line.
std::optional<MetricsRow> parse_metrics_line(std::string_view line);

// Reads all valid rows. Skips unknown keys with non-numeric values; a damaged line is added to the problems.
// Throws DataError if the file cannot be opened.
MetricsFile read_metrics(const std::filesystem::path& path);

// A reader that follows metrics.jsonl of a running training. Not thread-safe.
class MetricsTail {
 public:
  struct News {
    // Whether the file was replaced (rows of a long run are thinned, a resumed run drops some): `rows` then
    // contains all rows.
    bool from_the_start = false;
    std::vector<MetricsRow> rows = {};
  };

  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns the rows of lines completed since the last call and skips damaged lines. A missing file has no
  // rows. Throws DataError if it cannot be opened.
  News read();

 private:
  std::filesystem::path path_;
  std::uint64_t read_bytes_ = 0;
  std::uint64_t inode_ = 0;
};

// Joins a rank's rows of consecutive steps into one row. Step, time, loss and learning rate are those of the
// last step. smallest_loss, largest_loss, largest_step_ms, peaks and all other numbers are extremes over all
// steps. Times and throughput are means over the steps. A loss that is not finite is kept as the largest.
MetricsRow joined_rows(const MetricsRow& earlier, const MetricsRow& later);

// A writer of metrics.jsonl that limits the file size for runs of any length and number of ranks. While the
// file has at most `most_rows` step rows, every step has a row on every rank. Beyond that, it joins
// neighbouring rows of a rank (joined_rows()), and each row then covers twice as many steps; and so on.
// Validation rows are kept. Rows that could not be written, for example on a full disk, are written with the
// next ones, at most the newest `most_rows`. A file that was removed is created again. Not thread-safe.
class ThinnedMetricsWriter {
 public:
  static constexpr std::size_t kMostRows = 65'536;

  // Appends to an existing file. Drops rows of steps after `first_step`, left by a run that died later, and
  // with `its_validation` also the validation rows of that step.
  ThinnedMetricsWriter(std::filesystem::path path, std::int64_t first_step, bool its_validation = false,
                       std::size_t most_rows = kMostRows);

  // Appends one step of all ranks, in rank order.
  void append_step(std::span<const MetricsRow> of_ranks);
  // Appends several steps, in one write unless rows are thinned meanwhile.
  void append_steps(std::span<const std::vector<MetricsRow>> steps);
  void append_validation(const MetricsRow& row);
  // Writes the rows that are not in the file yet, even if they cover fewer steps than others.
  void flush();

 private:
  void add(std::span<const MetricsRow> of_ranks);
  void complete();
  void open();
  void write();
  void thin();

  std::filesystem::path path_;
  std::size_t most_rows_;
  std::optional<MetricsWriter> writer_;
  std::size_t rows_ = 0;                   // number of step rows in the file
  std::int64_t steps_ = 1;                 // number of steps that a row covers
  std::vector<MetricsRow> begun_;          // by rank: joined row of the steps since the last complete row
  std::vector<MetricsRow> rows_to_write_;  // in step order, including validation rows
};

}  // namespace rondo
