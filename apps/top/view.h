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
#include "rondo/format/run_progress.h"

namespace rondo {

// The state of a run, from the files that it has written so far.
class RunView {
 public:
  // Number of recent steps that the displayed means are computed from.
  static constexpr std::int64_t kRecentSteps = 50;

  // Throws UsageError when `directory` is not a run directory.
  explicit RunView(std::filesystem::path directory);

  // Reads new data. Returns true if there was any.
  bool refresh();

  const std::filesystem::path& directory() const { return directory_; }
  const std::optional<RunStart>& start() const { return start_; }
  // Returns true if a process holds the run directory's lock.
  bool is_running() const;
  // Returns the progress that the training itself displays, if it is newer than the last row of the metrics.
  const std::optional<RunProgress>& live() const { return live_; }
  // Returns the seconds since metrics.jsonl or progress.json was last written; empty before that.
  std::optional<double> quiet_s() const;
  // Return the newest row of rank 0's steps, and of a validation.
  const std::optional<MetricsRow>& latest() const { return latest_; }
  const std::optional<MetricsRow>& validation() const { return validation_; }
  std::optional<double> smallest_loss() const { return smallest_loss_; }
  // Returns the ranks' times over the last kRecentSteps steps.
  std::vector<RankTimes> times() const;
  // Returns the peak bytes by rank.
  const std::map<int, std::uint64_t>& peak_bytes() const { return peak_bytes_; }

 private:
  void take(const MetricsRow& row);

  std::filesystem::path directory_;
  MetricsTail tail_;
  std::optional<RunStart> start_;
  std::optional<RunProgress> live_;
  std::optional<MetricsRow> latest_;
  std::optional<MetricsRow> validation_;
  std::optional<double> smallest_loss_;
  std::deque<MetricsRow> recent_;
  std::map<int, std::uint64_t> peak_bytes_;
};

// Returns the screen's lines, cut to the terminal's size. If there are more ranks than lines, shows the
// slowest ones and the number of hidden ones.
std::vector<std::string> screen_lines(const RunView& run, TerminalSize size);

// Returns the screen's content as a JSON object: {run, running, step, total_steps, loss, validation_loss,
// validating: {done, of} or null, mfu, rate, rate_unit, ranks: [{rank, step_ms, compute_ms, exposed_comm_ms,
// comm_ms, peak_bytes}], straggler}.
nlohmann::ordered_json view_json(const RunView& run);

}  // namespace rondo
