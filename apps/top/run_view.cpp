#include "apps/top/run_view.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/run_directory.h"

namespace rondo {
namespace fs = std::filesystem;

RunView::RunView(fs::path directory) : directory_(std::move(directory)), tail_(directory_ / "metrics.jsonl") {
  if (!fs::is_directory(directory_))
    throw UsageError(str("RUN_DIR: ", directory_.string(), " is not a directory"));
  const auto has = [&](const char* name) { return fs::exists(directory_ / name); };
  if (!has("config.json") && !has("run.json") && !has("metrics.jsonl")) {
    throw UsageError(str("RUN_DIR: ", directory_.string(),
                         " is not a run directory: it holds no config.json, run.json or ",
                         "metrics.jsonl; give the --run-dir of a 'rondo train'"));
  }
}

bool RunView::refresh() {
  if (fs::exists(directory_ / "run.json")) {
    try {
      const std::vector<RunStart> starts = read_run_starts(directory_ / "run.json");
      if (!starts.empty()) start_ = starts.back();
    } catch (const DataError&) {
      // The figures are worth more than how the run was started.
    }
  }
  const MetricsTail::News news = tail_.read();
  if (news.from_the_start) {
    latest_.reset();
    validation_.reset();
    smallest_loss_.reset();
    recent_.clear();
  }
  for (const MetricsRow& row : news.rows) take(row);
  return !news.rows.empty();
}

void RunView::take(const MetricsRow& row) {
  if (row.is_validation()) {
    validation_ = row;
    return;
  }
  if (!latest_ || row.step > latest_->step || (row.step == latest_->step && row.rank < latest_->rank))
    latest_ = row;
  const std::optional<double> loss = row.smallest_loss ? row.smallest_loss : row.loss;
  if (loss && std::isfinite(*loss)) smallest_loss_ = std::min(smallest_loss_.value_or(*loss), *loss);
  if (row.peak_bytes) {
    auto& peak = peak_bytes_[row.rank];
    peak = std::max(peak, *row.peak_bytes);
  }
  recent_.push_back(row);
  while (recent_.front().step <= row.step - kRecentSteps) recent_.pop_front();
}

bool RunView::is_running() const { return RunLock::is_held(directory_); }

std::optional<double> RunView::quiet_s() const {
  std::error_code missing;
  const auto written = fs::last_write_time(directory_ / "metrics.jsonl", missing);
  if (missing) return std::nullopt;
  return std::max(0.0, std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count());
}

std::vector<RankTimes> RunView::times() const {
  return rank_times(std::vector<MetricsRow>(recent_.begin(), recent_.end()), kRecentSteps);
}

}  // namespace rondo
