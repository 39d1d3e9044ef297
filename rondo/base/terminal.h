#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace rondo {

// Capabilities of a file descriptor that may be a terminal.

// Environment variable in which a launcher passes a worker the width in columns of the terminal that shows
// the worker's output, although the worker writes to a pipe.
inline constexpr const char* kTerminalWidthVariable = "RONDO_TERMINAL_WIDTH";

// Returns whether the descriptor is a terminal that supports escape sequences: TERM is set and is not "dumb".
// On other outputs a line cannot be redrawn.
bool is_terminal_with_escapes(int descriptor);

// Returns whether the terminal supports escape sequences and the user has not set NO_COLOR to a non-empty
// value.
bool wants_colours(int descriptor);

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Returns the current size of the terminal. Returns 80 columns or 24 rows where the system does not report
// them, and for a descriptor that is no terminal.
TerminalSize terminal_size(int descriptor);

// Returns the number of columns that text is wrapped to: COLUMNS if it is a positive number, else those of
// terminal_size().
int text_width(int descriptor);

// Colours of a program's own text. Returns every text unchanged if constructed with false.
class TextColours {
 public:
  explicit TextColours(bool enabled) : enabled_(enabled) {}
  std::string heading(std::string_view text) const { return marked("1", text); }     // bold
  std::string name(std::string_view text) const { return marked("36", text); }       // cyan
  std::string failure(std::string_view text) const { return marked("1;31", text); }  // bold red

 private:
  std::string marked(std::string_view code, std::string_view text) const;

  bool enabled_;
};

// Returns the beginning of a line of UTF-8 that fits into `columns`, counting one for each character and
// nothing for an escape sequence. Keeps all escape sequences.
std::string clipped(std::string_view line, std::size_t columns);

}  // namespace rondo
