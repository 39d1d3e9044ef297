#include "rondo/observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

template <class... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, format, arguments...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, arguments...);
  return text;
}

std::string people_number(double value) {
  if (value >= 1e6) return formatted("%.2fM", value / 1e6);
  if (value >= 1e4) return formatted("%.1fk", value / 1e3);
  return formatted(value >= 100 ? "%.0f" : "%.1f", value);
}

// Set by `rondo run` for workers whose output it shows on a terminal.
const char* launchers_terminal_width() { return std::getenv("RONDO_TERMINAL_WIDTH"); }

std::size_t terminal_width(std::FILE* stream) {
  if (const char* width = launchers_terminal_width()) {
    return static_cast<std::size_t>(std::max(20, std::atoi(width)));
  }
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

ProgressStyle resolve(ProgressStyle style, std::FILE* stream) {
  if (style != ProgressStyle::automatic) return style;
  const bool on_terminal = isatty(fileno(stream)) == 1 || launchers_terminal_width() != nullptr;
  return on_terminal ? ProgressStyle::bar : ProgressStyle::lines;
}

}  // namespace

ProgressStyle parse_progress_style(std::string_view text) {
  if (text == "auto") return ProgressStyle::automatic;
  if (text == "bar") return ProgressStyle::bar;
  if (text == "lines") return ProgressStyle::lines;
  if (text == "off") return ProgressStyle::off;
  throw UsageError(str("progress '", text, "' is not one of auto, bar, lines, off"));
}

std::string format_clock_time(Duration duration) {
  const auto total = static_cast<long long>(std::llround(seconds(duration)));
  const long long hours = total / 3600;
  if (hours > 0) return formatted("%lld:%02lld:%02lld", hours, total / 60 % 60, total % 60);
  return formatted("%lld:%02lld", total / 60, total % 60);
}

Progress::Progress(std::FILE* stream, const ProgressOptions& options)
    : stream_(stream),
      options_(options),
      style_(resolve(options.style, stream)),
      started_(Clock::now()),
      last_shown_step_(options.first_step) {}

Progress::~Progress() { finish(); }

void Progress::update(const ProgressUpdate& update) {
  if (style_ == ProgressStyle::off) return;
  const TimePoint now = Clock::now();
  const bool last = update.step >= options_.total_steps;
  const bool bar = style_ == ProgressStyle::bar;
  const bool due = !last_shown_ || now - *last_shown_ >= (bar ? options_.redraw_every : options_.line_every);
  const bool far_enough = bar || !last_shown_ || update.step - last_shown_step_ >= options_.line_every_steps;
  if (!last && !(due && far_enough)) return;
  bar ? draw_bar(update) : print_line(update);
  last_shown_ = now;
  last_shown_step_ = update.step;
}

void Progress::note(std::string_view text) {
  if (style_ == ProgressStyle::off) return;
  if (!bar_.empty()) std::fputs("\r\033[K", stream_);
  std::fprintf(stream_, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fputs(bar_.c_str(), stream_);
  std::fflush(stream_);
}

void Progress::finish() {
  if (bar_.empty()) return;
  std::fputc('\n', stream_);
  std::fflush(stream_);
  bar_.clear();
}

void Progress::draw_bar(const ProgressUpdate& update) {
  const std::string numbers =
      formatted(" %lld/%lld  loss %.4f  %s %s/s  lr %.2e  left %s", static_cast<long long>(update.step),
                static_cast<long long>(options_.total_steps), update.loss, people_number(update.rate).c_str(),
                std::string(update.unit).c_str(), update.learning_rate, time_left(update.step).c_str());
  const std::size_t width = terminal_width(stream_) - 1;
  std::string line;
  if (width > numbers.size() + 12) {
    const std::size_t cells = std::min<std::size_t>(width - numbers.size() - 2, 40);
    const double done = static_cast<double>(update.step) /
                        static_cast<double>(std::max<std::int64_t>(1, options_.total_steps));
    const auto full = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * static_cast<double>(cells));
    line = str('[', std::string(full, '='), std::string(cells - full, ' '), ']');
  }
  line = (line + numbers).substr(0, width);
  bar_ = str("\r", line, "\033[K");
  std::fputs(bar_.c_str(), stream_);
  std::fflush(stream_);
}

void Progress::print_line(const ProgressUpdate& update) {
  std::fprintf(stream_, "step %lld/%lld  epoch %.2f  loss %.4f  %s %s/s  lr %.2e  left %s\n",
               static_cast<long long>(update.step), static_cast<long long>(options_.total_steps),
               update.epoch, update.loss, people_number(update.rate).c_str(),
               std::string(update.unit).c_str(), update.learning_rate, time_left(update.step).c_str());
  std::fflush(stream_);
}

std::string Progress::time_left(std::int64_t step) const {
  const std::int64_t done = step - options_.first_step;
  if (done <= 0) return "?";
  const double per_step = seconds(Clock::now() - started_) / static_cast<double>(done);
  const double left = per_step * static_cast<double>(std::max<std::int64_t>(0, options_.total_steps - step));
  return format_clock_time(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(left)));
}

}  // namespace rondo
