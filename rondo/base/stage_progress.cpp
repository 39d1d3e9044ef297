#include "rondo/base/stage_progress.h"

#include "rondo/base/blocked_signals.h"
#include "rondo/base/progress.h"
#include "rondo/base/text.h"

namespace rondo {

StageProgress::StageProgress(std::FILE* stream, const StageProgressOptions& options)
    : options_(options), line_(stream, options.style) {}

StageProgress::~StageProgress() {
  end();
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StageProgress::begin(std::string_view stage) {
  if (line_.style() == ProgressStyle::off) return;
  const std::lock_guard lock(mutex_);
  line_.clear();
  stage_ = stage;
  begun_ = Clock::now();
  done_ = of_ = 0;
  ++number_;
  if (!thread_.joinable()) {
    const BlockedSignals for_the_thread;
    thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

void StageProgress::update(std::int64_t done, std::int64_t of, std::string_view unit) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  of_ = of;
  unit_ = unit;
}

void StageProgress::end() {
  const std::lock_guard lock(mutex_);
  line_.clear();
  stage_.clear();
  ++number_;
  changed_.notify_all();
}

void StageProgress::run() {
  const bool bar = line_.style() == ProgressStyle::bar;
  const Duration after = bar ? options_.bar_after : options_.line_after;
  const Duration every = bar ? options_.bar_every : options_.lines_every;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const std::uint64_t number = number_;
    const auto is_over = [&] { return stops_ || number_ != number; };
    if (stage_.empty()) {
      changed_.wait(lock, is_over);
      continue;
    }
    for (TimePoint next = begun_ + after; !changed_.wait_until(lock, next, is_over);) {
      const TimePoint now = Clock::now();
      line_.show({text(now), str(stage_, ": ", format_clock_time(now - begun_)), stage_});
      next = now + every;
    }
  }
}

std::string StageProgress::text(TimePoint now) const {
  const Duration elapsed = now - begun_;
  std::string text = str(stage_, ": ");
  if (of_ > 0) text += str(done_, " of ", of_, ' ', unit_, "  ");
  text += format_clock_time(elapsed);
  if (of_ > 0 && done_ > 0 && done_ < of_)
    text += str("  left ", format_clock_time(expected_time(elapsed, done_, of_ - done_)));
  return text;
}

}  // namespace rondo
