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

// metrics.jsonl: one JSON object a line, one line per rank and step, or in a long run per rank and some steps
// (thinned_metrics.h). What was not measured is left out of a line.
namespace rondo {

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

}  // namespace rondo
