#include "rondo/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace rondo {

bool is_terminal_with_escapes(int descriptor) {
  if (isatty(descriptor) != 1) return false;
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

bool wants_colours(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  return is_terminal_with_escapes(descriptor) && (refused == nullptr || *refused == '\0');
}

TerminalSize terminal_size(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

}  // namespace rondo
