#pragma once

namespace rondo {

// What may be written to a stream, given by its file descriptor.

// A terminal that understands escape sequences: not TERM=dumb, nor one without a TERM. On others a line
// cannot be redrawn.
bool is_terminal_with_escapes(int descriptor);

// Such a terminal, and the user has not set NO_COLOR (to anything but nothing).
bool wants_colours(int descriptor);

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Of the terminal behind it; 80 x 24 where there is none.
TerminalSize terminal_size(int descriptor);

}  // namespace rondo
