#include "rondo/base/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

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

// A field of the progress line. If the line is too long, the field with the highest rank is removed first.
struct Field {
  std::string text;
  int rank;
};

// Returns the fields that fit into `width` columns, unabridged, in their order.
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

}  // namespace

double smoothed_rate(double shown, double rate) {
  constexpr double kWeight = 0.2;
  return shown == 0 ? rate : shown + kWeight * (rate - shown);
}

Duration expected_time(Duration elapsed, std::int64_t done, std::int64_t remaining) {
  const double each = seconds(elapsed) / static_cast<double>(std::max<std::int64_t>(1, done));
  return bounded_duration(
      std::chrono::duration<double>(each * static_cast<double>(std::max<std::int64_t>(0, remaining))));
}

std::string format_clock_time(Duration duration) {
  const auto total = static_cast<long long>(std::llround(seconds(duration)));
  const long long hours = total / 3600;
  if (hours > 0) return formatted("%lld:%02lld:%02lld", hours, total / 60 % 60, total % 60);
  return formatted("%lld:%02lld", total / 60, total % 60);
}

Progress::Progress(std::FILE* stream, const ProgressOptions& options)
    : options_(options),
      line_(stream, options.style),
      started_(Clock::now()),
      last_shown_step_(options.first_step) {}

Progress::~Progress() { finish(); }

void Progress::update(const ProgressUpdate& update) {
  activity_shown_.reset();
  if (line_.style() == ProgressStyle::off) return;
  const TimePoint now = Clock::now();
  const Duration since = last_shown_ ? now - *last_shown_ : kLongestDuration;
  const bool last = update.step >= options_.total_steps;
  const bool bar = line_.style() == ProgressStyle::bar;
  const bool due = since >= (bar ? options_.redraw_every : options_.line_every);
  const bool far_enough = bar || since >= options_.line_at_most_after ||
                          update.step - last_shown_step_ >= options_.line_every_steps;
  if (!last && !(due && far_enough)) return;
  bar ? draw_bar(update) : print_line(update);
  last_shown_ = now;
  last_shown_step_ = update.step;
}

void Progress::note(std::string_view text) {
  if (activity_shown_ && last_drawn_.step > 0) draw_bar(last_drawn_);
  activity_shown_.reset();
  line_.print(text);
}

void Progress::activity(std::string_view what, std::int64_t done, std::int64_t of, std::string_view unit) {
  if (line_.style() == ProgressStyle::off) return;
  const TimePoint now = Clock::now();
  const bool bar = line_.style() == ProgressStyle::bar;
  // Short operations show no line.
  if (!activity_shown_) activity_shown_ = now;
  if (now - *activity_shown_ < (bar ? options_.redraw_every : options_.activity_every)) return;
  activity_shown_ = now;
  // A narrow terminal shows fewer words instead of cutting the line: a cut number would be wrong.
  line_.show({str(what, ": ", done, " of ", of, ' ', unit), str(what, ": ", done, " of ", of),
              str(what, ' ', done, '/', of), std::string(what)});
}

void Progress::finish() {
  if (activity_shown_ && last_drawn_.step > 0) draw_bar(last_drawn_);
  activity_shown_.reset();
  line_.keep();
}

void Progress::draw_bar(const ProgressUpdate& update) {
  const std::size_t width = line_.width();
  const std::string numbers = fitting({{formatted("%lld/%lld", static_cast<long long>(update.step),
                                                  static_cast<long long>(options_.total_steps)),
                                        0},
                                       {formatted("loss %.4f", update.loss), 1},
                                       {str(people_number(update.rate), ' ', update.unit, "/s"), 3},
                                       {formatted("lr %.2e", update.learning_rate), 4},
                                       {time_text(update.step), 2}},
                                      width);
  std::string line;
  if (width > numbers.size() + 13) {
    const std::size_t cells = std::min<std::size_t>(width - numbers.size() - 3, 40);
    const double done = static_cast<double>(update.step) /
                        static_cast<double>(std::max<std::int64_t>(1, options_.total_steps));
    const auto full = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * static_cast<double>(cells));
    line = str('[', std::string(full, '='), std::string(cells - full, ' '), "] ");
  }
  line_.show({line + numbers});
  const std::string unit(update.unit);
  last_drawn_ = update;
  unit_of_last_ = unit;
  last_drawn_.unit = unit_of_last_;
}

void Progress::print_line(const ProgressUpdate& update) {
  line_.show({formatted("step %lld/%lld  epoch %.2f  loss %.4f  ", static_cast<long long>(update.step),
                        static_cast<long long>(options_.total_steps), update.epoch, update.loss) +
              str(people_number(update.rate), ' ', update.unit, "/s") +
              formatted("  lr %.2e  ", update.learning_rate) + time_text(update.step)});
}

std::string Progress::time_text(std::int64_t step) const {
  const Duration elapsed = Clock::now() - started_;
  if (step >= options_.total_steps) return str("took ", format_clock_time(elapsed));
  const std::int64_t done = step - options_.first_step;
  if (done <= 0) return "left ?";
  return str("left ", format_clock_time(expected_time(elapsed, done, options_.total_steps - step)));
}

}  // namespace rondo
