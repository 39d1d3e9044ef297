#include "rondo/observe/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/terminal.h"
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
  return static_cast<std::size_t>(terminal_size(fileno(stream)).columns);
}

ProgressStyle resolve(ProgressStyle style, std::FILE* stream) {
  if (style != ProgressStyle::automatic) return style;
  const bool on_terminal = is_terminal_with_escapes(fileno(stream)) || launchers_terminal_width() != nullptr;
  return on_terminal ? ProgressStyle::bar : ProgressStyle::lines;
}

// A part of the bar's line; of those that do not fit the one with the highest rank goes first.
struct Field {
  std::string text;
  int rank;
};

// The fields that fit into `width` columns, whole, in their order.
std::string fitting(std::vector<Field> fields, std::size_t width) {
  for (;;) {
    std::vector<std::string> texts;
    for (const Field& field : fields) texts.push_back(field.text);
    std::string line = join(texts, "  ");
    if (line.size() <= width || fields.size() == 1) return line.substr(0, width);
    fields.erase(std::max_element(fields.begin(), fields.end(),
                                  [](const Field& a, const Field& b) { return a.rank < b.rank; }));
  }
}

// The first text that fits into `width` columns; of the last one what fits.
std::string first_fitting(const std::vector<std::string>& texts, std::size_t width) {
  for (const std::string& text : texts) {
    if (text.size() <= width) return text;
  }
  return texts.back().substr(0, width);
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
  activity_shown_.reset();
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
  activity_shown_.reset();
  if (style_ == ProgressStyle::off) return;
  if (!bar_.empty()) std::fputs("\r\033[K", stream_);
  std::fprintf(stream_, "%.*s\n", static_cast<int>(text.size()), text.data());
  std::fputs(bar_.c_str(), stream_);
  std::fflush(stream_);
}

void Progress::activity(std::string_view what, std::int64_t done, std::int64_t of, std::string_view unit) {
  if (style_ == ProgressStyle::off) return;
  const TimePoint now = Clock::now();
  const bool bar = style_ == ProgressStyle::bar;
  // Operations that end at once need no line.
  if (!activity_shown_) activity_shown_ = now;
  if (now - *activity_shown_ < (bar ? options_.redraw_every : options_.activity_every)) return;
  activity_shown_ = now;
  const std::string line = str(what, ": ", done, " of ", of, ' ', unit);
  if (bar) {
    // On a narrow terminal fewer words: a number that is cut would be another number. One column stays free.
    const std::vector<std::string> shorter = {line, str(what, ": ", done, " of ", of),
                                              str(what, ' ', done, '/', of), std::string(what)};
    bar_ = str("\r", first_fitting(shorter, terminal_width(stream_) - 1), "\033[K");
    std::fputs(bar_.c_str(), stream_);
  } else {
    std::fprintf(stream_, "%s\n", line.c_str());
  }
  std::fflush(stream_);
}

void Progress::finish() {
  if (bar_.empty()) return;
  std::fputc('\n', stream_);
  std::fflush(stream_);
  bar_.clear();
}

void Progress::draw_bar(const ProgressUpdate& update) {
  // One column stays free: a full line would move the cursor to the next.
  const std::size_t width = terminal_width(stream_) - 1;
  const std::string numbers = fitting({{formatted("%lld/%lld", static_cast<long long>(update.step),
                                                  static_cast<long long>(options_.total_steps)),
                                        0},
                                       {formatted("loss %.4f", update.loss), 1},
                                       {str(people_number(update.rate), ' ', update.unit, "/s"), 3},
                                       {formatted("lr %.2e", update.learning_rate), 4},
                                       {str("left ", time_left(update.step)), 2}},
                                      width);
  std::string line;
  if (width > numbers.size() + 13) {
    const std::size_t cells = std::min<std::size_t>(width - numbers.size() - 3, 40);
    const double done = static_cast<double>(update.step) /
                        static_cast<double>(std::max<std::int64_t>(1, options_.total_steps));
    const auto full = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * static_cast<double>(cells));
    line = str('[', std::string(full, '='), std::string(cells - full, ' '), "] ");
  }
  bar_ = str("\r", line, numbers, "\033[K");
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
