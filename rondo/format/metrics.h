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

// metrics.jsonl: one JSON object a line, one line per rank and step, or in a long run per rank and some steps
// (ThinnedMetricsWriter). What was not measured is left out of a line.

// The row of a pass over the validation data, with its figures by name of metric.
MetricsRow validation_row(std::int64_t step, const std::map<std::string, double>& figures);

// The line of a row, without its end. A loss that is not finite becomes null, as JSON has no other word for
// it.
std::string to_json_line(const MetricsRow& row);

// Appends rows; each is in the file when append() returns, as a whole line; none is when it throws. A line
// that a killed run left unfinished is ended first, so that it spoils no other. Not thread-safe.
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

// Follows metrics.jsonl of a run that goes on. Not thread-safe.
class MetricsTail {
 public:
  struct News {
    // Another file has taken the place of the one that was read (rows of a long run become fewer, a resumed
    // run drops some): `rows` are all of its rows.
    bool from_the_start = false;
    std::vector<MetricsRow> rows = {};
  };

  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}

  // The rows of lines that were ended since the last call; damaged lines are passed over. A file that does
  // not exist has none. Throws DataError when it cannot be opened.
  News read();

 private:
  std::filesystem::path path_;
  std::uint64_t read_bytes_ = 0;
  std::uint64_t inode_ = 0;
};

// One row for what two rows of a rank say of consecutive steps. Step, time, loss and learning rate are
// those of the last step; smallest_loss, largest_loss and largest_step_ms are of all of them, as is the
// larger peak and every other number's largest; times and throughput are means over the steps. A loss that is
// not finite is never lost: it is the largest.
MetricsRow joined_rows(const MetricsRow& earlier, const MetricsRow& later);

// Writes metrics.jsonl of a run of any length and width in bounded space. While the file has at most
// `most_rows` rows of steps, every step has its row on every rank. Beyond that, neighbouring rows of a rank
// become one (joined_rows), and from then on a row stands for twice as many steps; and so on. Rows of
// validations stay as they are. Rows that could not be written, as on a full disk, are written with the next
// ones, the newest `most_rows` of them; a file that was removed meanwhile is begun anew. Not thread-safe.
class ThinnedMetricsWriter {
 public:
  static constexpr std::size_t kMostRows = 65'536;

  // Goes on in a file that exists. Rows of steps behind `first_step` go, of a run that went on and died, and
  // with `its_validation` so do the validations of that step.
  ThinnedMetricsWriter(std::filesystem::path path, std::int64_t first_step, bool its_validation = false,
                       std::size_t most_rows = kMostRows);

  // One step of all ranks, in rank order.
  void append_step(std::span<const MetricsRow> of_ranks);
  // Several, in one write where nothing is thinned meanwhile.
  void append_steps(std::span<const std::vector<MetricsRow>> steps);
  void append_validation(const MetricsRow& row);
  // Rows of fewer steps than others stand for, of what is not in the file yet.
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
  std::size_t rows_ = 0;                   // of steps, in the file
  std::int64_t steps_ = 1;                 // that a row stands for
  std::vector<MetricsRow> begun_;          // by rank: of the steps since the last row
  std::vector<MetricsRow> rows_to_write_;  // in the order of steps, validations included
};

}  // namespace rondo
