#pragma once

namespace rondo {

// Terminal capabilities of a file descriptor.

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

// Returns the size of the terminal, or 80 x 24 if the descriptor is not a terminal.
TerminalSize terminal_size(int descriptor);

}  // namespace rondo
