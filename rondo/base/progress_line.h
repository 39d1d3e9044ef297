#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/progress_style.h"

namespace rondo {

// A progress line: the last line of a program's output, redrawn on a terminal and printed occasionally
// elsewhere. One thread uses an object.
class ProgressLine {
 public:
  // Resolves `automatic` to a bar on a terminal with escape sequences, also if a launcher forwards the output
  // to one, and to lines elsewhere. `stream` is not owned and must outlive the object.
  ProgressLine(std::FILE* stream, ProgressStyle style);
  // Erases a drawn line.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  ProgressStyle style() const { return style_; }  // bar, lines or off
  // Returns the number of columns that a drawn line may fill: one less than the terminal's current width, at
  // least 19.
  std::size_t width() const;

  // Replaces the drawn line by the first text that fits into width(), else by the beginning of the last text.
  // With style `lines`, prints the first text as a separate line. Does nothing if the style is off.
  void show(const std::vector<std::string>& texts);
  // Prints a separate line above the drawn line. Does nothing if the style is off.
  void print(std::string_view text);
  // Ends the drawn line and leaves it on the terminal.
  void keep();
  // Removes the drawn line.
  void clear();

 private:
  std::FILE* stream_;
  ProgressStyle style_;
  std::string drawn_;  // empty: nothing is drawn
};

// Removes a progress line that this process has drawn on standard error, until it is redrawn. Call this
// before other output to the same terminal. Any thread.
void hide_progress_line();

// Returns the text that removes the line that hide_progress_line() would, for a writer that prints it to
// standard error itself; empty if none is drawn. Any thread.
std::string_view take_progress_line();

// Prints a line to standard error, after hide_progress_line(). Any thread.
void print_message(std::string_view text);

}  // namespace rondo
