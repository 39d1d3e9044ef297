#include "rondo/base/progress_line.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "rondo/base/error.h"
#include "rondo/base/terminal.h"

namespace rondo {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

// Whether a line is drawn on standard error.
std::atomic<bool> line_is_drawn = false;

ProgressStyle resolved(ProgressStyle style, std::FILE* stream) {
  if (style != ProgressStyle::automatic) return style;
  const bool on_terminal =
      is_terminal_with_escapes(fileno(stream)) || std::getenv(kTerminalWidthVariable) != nullptr;
  return on_terminal ? ProgressStyle::bar : ProgressStyle::lines;
}

// Keeps the writes of one text together, without those of other threads in between.
void write_at_once(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

ProgressStyle parse_progress_style(std::string_view text) {
  if (text == "auto") return ProgressStyle::automatic;
  if (text == "bar") return ProgressStyle::bar;
  if (text == "lines") return ProgressStyle::lines;
  if (text == "off") return ProgressStyle::off;
  throw UsageError(str("progress '", text, "' is not one of auto, bar, lines, off"));
}

ProgressLine::ProgressLine(std::FILE* stream, ProgressStyle style)
    : stream_(stream), style_(resolved(style, stream)) {}

ProgressLine::~ProgressLine() { clear(); }

std::size_t ProgressLine::width() const {
  // Queried each time, since the terminal may be resized. A full line would move the cursor to the next line.
  constexpr int kLeast = 20;
  const char* const passed = std::getenv(kTerminalWidthVariable);
  const int columns = is_terminal_with_escapes(fileno(stream_)) || passed == nullptr
                          ? terminal_size(fileno(stream_)).columns
                          : std::atoi(passed);
  return static_cast<std::size_t>(std::max(kLeast, columns) - 1);
}

void ProgressLine::show(const std::vector<std::string>& texts) {
  if (style_ == ProgressStyle::off || texts.empty()) return;
  if (style_ == ProgressStyle::lines) {
    write_at_once(stream_, texts.front() + "\n");
    return;
  }
  const std::size_t room = width();
  const auto fits =
      std::find_if(texts.begin(), texts.end(), [&](const std::string& text) { return text.size() <= room; });
  drawn_ = fits == texts.end() ? clipped(texts.back(), room) : *fits;
  write_at_once(stream_, str("\r", drawn_, "\x1b[K"));
  if (stream_ == stderr) line_is_drawn = true;
}

void ProgressLine::print(std::string_view text) {
  if (style_ == ProgressStyle::off) return;
  if (drawn_.empty()) {
    write_at_once(stream_, str(text, "\n"));
  } else {
    write_at_once(stream_, str(kEraseLine, text, "\n\r", drawn_, "\x1b[K"));
  }
}

void ProgressLine::keep() {
  if (drawn_.empty()) return;
  const bool was_hidden = stream_ == stderr && !line_is_drawn.exchange(false);
  write_at_once(stream_, was_hidden ? drawn_ + "\n" : "\n");
  drawn_.clear();
}

void ProgressLine::clear() {
  if (drawn_.empty()) return;
  drawn_.clear();
  if (stream_ == stderr) line_is_drawn = false;
  write_at_once(stream_, kEraseLine);
}

std::string_view take_progress_line() { return line_is_drawn.exchange(false) ? kEraseLine : ""; }

void hide_progress_line() {
  if (const std::string_view erase = take_progress_line(); !erase.empty()) write_at_once(stderr, erase);
}

void print_message(std::string_view text) { write_at_once(stderr, str(take_progress_line(), text, "\n")); }

}  // namespace rondo
