#include "apps/top/view.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/printable.h"
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
      // The metrics are more important than the command line of the run.
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
  live_ = read_run_progress(directory_);
  // A file of an earlier start may remain, for example if the run was resumed from an older checkpoint.
  if (live_ && latest_ && live_->step < latest_->step) live_.reset();
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
  std::optional<double> quiet;
  for (const char* file : {"metrics.jsonl", "progress.json"}) {
    std::error_code missing;
    const auto written = fs::last_write_time(directory_ / file, missing);
    if (missing) continue;
    const double age = std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
    quiet = std::max(0.0, std::min(age, quiet.value_or(age)));
  }
  return quiet;
}

std::vector<RankTimes> RunView::times() const {
  return rank_times(std::vector<MetricsRow>(recent_.begin(), recent_.end()), kRecentSteps);
}

namespace {

using Json = nlohmann::ordered_json;

template <class... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  char text[256];
  std::snprintf(text, sizeof text, format, arguments...);
  return text;
}

std::string clock_time(double seconds) {
  const auto total = static_cast<long long>(std::llround(std::max(0.0, seconds)));
  return formatted("%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
}

// The newest figures of a run: from its progress display, else from the metrics.
struct Figures {
  std::int64_t step = 0, total_steps = 0;
  double epochs = 0;  // epochs done, with the fraction of the current one if it is known
  double elapsed_s = 0;
  std::optional<double> loss, learning_rate, rate;
  std::string unit;  // of `rate`
};

std::optional<Figures> newest_figures(const RunView& run) {
  Figures figures;
  figures.total_steps = run.start() ? run.start()->total_steps : 0;
  if (const auto& live = run.live()) {
    figures.step = live->step;
    if (live->total_steps > 0) figures.total_steps = live->total_steps;
    figures.epochs = live->epoch;
    figures.elapsed_s = live->elapsed_s;
    if (live->step == 0 || live->rate == 0) return figures;  // no step of this start has ended
    figures.loss = live->loss;
    figures.learning_rate = live->learning_rate;
    figures.rate = live->rate;
    figures.unit = printable(live->unit);
    return figures;
  }
  if (!run.latest()) return std::nullopt;
  const MetricsRow& latest = *run.latest();
  figures.step = latest.step;
  figures.epochs = static_cast<double>(latest.epoch);
  figures.elapsed_s = latest.elapsed_s;
  figures.loss = latest.loss;
  figures.learning_rate = latest.learning_rate;
  figures.rate = latest.tokens_per_s ? latest.tokens_per_s : latest.samples_per_s;
  figures.unit = latest.tokens_per_s ? "tokens" : "samples";
  return figures;
}

std::string state_of(const RunView& run) {
  if (!run.is_running()) return "ended";
  const auto quiet = run.quiet_s();
  if (!quiet) return "starting";
  return *quiet < 10 ? "running" : str("running, no update for ", clock_time(*quiet));
}

std::string head_line(const RunView& run) {
  std::vector<std::string> parts{state_of(run)};
  if (const auto& start = run.start())
    parts.push_back(
        str(printable(start->strategy), " on ", start->ranks, start->ranks == 1 ? " rank" : " ranks"));
  parts.push_back(printable(run.directory().string()));
  if (const auto& start = run.start())
    parts.push_back(str("since ", printable(start->made.time), " on ", printable(start->made.host)));
  return join(parts, "   ");
}

std::string step_line(const RunView& run, const Figures& figures) {
  std::string line = str("step ", figures.step);
  if (figures.total_steps > 0) {
    line += formatted(" of %lld (%.1f %%)", static_cast<long long>(figures.total_steps),
                      100.0 * static_cast<double>(figures.step) / static_cast<double>(figures.total_steps));
  }
  line += str("   epoch ", static_cast<std::int64_t>(figures.epochs) + 1, "   ",
              clock_time(figures.elapsed_s), " trained");
  double step_ms = 0;
  for (const RankTimes& times : run.times()) step_ms = std::max(step_ms, times.step_ms);
  if (step_ms == 0 && figures.step > 0) step_ms = 1e3 * figures.elapsed_s / static_cast<double>(figures.step);
  if (figures.total_steps > figures.step && step_ms > 0)
    line +=
        str("   left ", clock_time(static_cast<double>(figures.total_steps - figures.step) * step_ms / 1e3));
  return line;
}

std::string figures_line(const RunView& run, const Figures& figures) {
  std::vector<std::string> parts;
  if (figures.loss) parts.push_back(formatted("loss %.4f", *figures.loss));
  if (run.smallest_loss()) parts.push_back(formatted("smallest %.4f", *run.smallest_loss()));
  if (run.validation() && run.validation()->validation_loss)
    parts.push_back(formatted("validation %.4f", *run.validation()->validation_loss));
  if (run.latest()) {
    if (const auto mfu = run.latest()->others.find("mfu"); mfu != run.latest()->others.end())
      parts.push_back(formatted("MFU %.1f %%", 100 * mfu->second));
  }
  if (figures.learning_rate) parts.push_back(formatted("lr %.2e", *figures.learning_rate));
  if (figures.rate) parts.push_back(formatted("%.0f %s/s", *figures.rate, figures.unit.c_str()));
  if (run.live() && run.live()->to_validate > 0)
    parts.push_back(str("validation: ", run.live()->validated, " of ", run.live()->to_validate, " batches"));
  return join(parts, "   ");
}

std::string rank_line(const RankTimes& times, const RunView& run) {
  const auto peak = run.peak_bytes().find(times.rank);
  return formatted("%5d %10.2f %10.2f %10.2f %14.2f  %s", times.rank, times.step_ms, times.compute_ms,
                   times.exposed_comm_ms, times.comm_ms,
                   peak == run.peak_bytes().end() ? "" : to_string(Bytes{peak->second}).c_str());
}

}  // namespace

std::vector<std::string> screen_lines(const RunView& run, TerminalSize size) {
  std::vector<std::string> lines{head_line(run)};
  const std::optional<Figures> figures = newest_figures(run);
  if (figures) {
    lines.push_back(step_line(run, *figures));
    lines.push_back(figures_line(run, *figures));
  }
  if (!run.latest()) {
    lines.emplace_back("no times of ranks yet: the first row of metrics is written after --log-every steps");
  } else {
    std::vector<RankTimes> times = run.times();
    if (const auto straggler = find_straggler(times)) lines.push_back(to_string(*straggler));
    lines.emplace_back();
    lines.push_back(str(" rank    step ms  computing    waiting  communication  peak memory   (means of ",
                        RunView::kRecentSteps, " steps)"));
    const auto room = static_cast<std::size_t>(std::max(1, size.rows - static_cast<int>(lines.size()) - 2));
    const std::size_t left_out = times.size() > room ? times.size() - room : 0;
    if (left_out > 0) {
      std::stable_sort(times.begin(), times.end(),
                       [](const RankTimes& a, const RankTimes& b) { return a.compute_ms > b.compute_ms; });
      times.resize(room);
    }
    for (const RankTimes& each : times) lines.push_back(rank_line(each, run));
    if (left_out > 0) lines.push_back(str("      and ", left_out, " ranks that compute for less time"));
  }
  for (std::string& line : lines) line = clipped(line, static_cast<std::size_t>(std::max(1, size.columns)));
  lines.resize(std::min(lines.size(), static_cast<std::size_t>(std::max(1, size.rows - 1))));
  return lines;
}

Json view_json(const RunView& run) {
  const auto number = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? Json(*value) : Json();
  };
  Json json{{"run", run.directory().string()}, {"running", run.is_running()}};
  const std::optional<Figures> figures = newest_figures(run);
  json["step"] = figures ? Json(figures->step) : Json();
  json["total_steps"] = figures && figures->total_steps > 0 ? Json(figures->total_steps) : Json();
  json["loss"] = figures ? number(figures->loss) : Json();
  json["validation_loss"] = run.validation() ? number(run.validation()->validation_loss) : Json();
  const auto& live = run.live();
  json["validating"] =
      live && live->to_validate > 0 ? Json{{"done", live->validated}, {"of", live->to_validate}} : Json();
  json["mfu"] = Json();
  if (run.latest()) {
    if (const auto mfu = run.latest()->others.find("mfu"); mfu != run.latest()->others.end())
      json["mfu"] = number(mfu->second);
  }
  if (figures && figures->rate) {
    json["rate"] = number(figures->rate);
    json["rate_unit"] = figures->unit + "/s";
  }
  const std::vector<RankTimes> ranks = run.times();
  json["ranks"] = Json::array();
  for (const RankTimes& times : ranks) {
    const auto peak = run.peak_bytes().find(times.rank);
    json["ranks"].push_back({{"rank", times.rank},
                             {"step_ms", times.step_ms},
                             {"compute_ms", times.compute_ms},
                             {"exposed_comm_ms", times.exposed_comm_ms},
                             {"comm_ms", times.comm_ms},
                             {"peak_bytes", peak == run.peak_bytes().end() ? Json() : Json(peak->second)}});
  }
  const auto straggler = find_straggler(ranks);
  json["straggler"] = straggler ? Json(to_string(*straggler)) : Json();
  return json;
}

}  // namespace rondo
