#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/terminal.h"
#include "rondo/format/metrics.h"
#include "rondo/format/report/stragglers.h"
#include "rondo/format/run_directory.h"

namespace rondo {

// What a run has said of itself so far.
class RunView {
 public:
  // The means over steps that the screen shows are of so many.
  static constexpr std::int64_t kRecentSteps = 50;

  // Throws UsageError when `directory` is not a run directory.
  explicit RunView(std::filesystem::path directory);

  // Reads what is new. Returns whether there was anything.
  bool refresh();

  const std::filesystem::path& directory() const { return directory_; }
  const std::optional<RunStart>& start() const { return start_; }
  // A process has the run directory's lock.
  bool is_running() const;
  // Seconds since metrics.jsonl was written to; empty before its first row.
  std::optional<double> quiet_s() const;
  // The newest row of rank 0's steps, and of a validation.
  const std::optional<MetricsRow>& latest() const { return latest_; }
  const std::optional<MetricsRow>& validation() const { return validation_; }
  std::optional<double> smallest_loss() const { return smallest_loss_; }
  // Of the last kRecentSteps steps.
  std::vector<RankTimes> times() const;
  // Bytes by rank, the largest so far.
  const std::map<int, std::uint64_t>& peak_bytes() const { return peak_bytes_; }

 private:
  void take(const MetricsRow& row);

  std::filesystem::path directory_;
  MetricsTail tail_;
  std::optional<RunStart> start_;
  std::optional<MetricsRow> latest_;
  std::optional<MetricsRow> validation_;
  std::optional<double> smallest_loss_;
  std::deque<MetricsRow> recent_;
  std::map<int, std::uint64_t> peak_bytes_;
};

// The lines of the screen, none wider or more than the terminal holds. Of more ranks than there are lines the
// slowest are shown, and how many are not.
std::vector<std::string> screen_lines(const RunView& run, TerminalSize size);

// The same as a JSON object: {run, running, step, total_steps, loss, validation, rate, rate_unit, ranks:
// [{rank, step_ms, compute_ms, exposed_comm_ms, comm_ms, peak_bytes}], straggler}.
nlohmann::ordered_json view_json(const RunView& run);

}  // namespace rondo
