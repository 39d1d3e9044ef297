#include "rondo/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

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
  TerminalSize size;
  winsize window{};
  if (ioctl(descriptor, TIOCGWINSZ, &window) != 0) return size;
  if (window.ws_col > 0) size.columns = window.ws_col;
  if (window.ws_row > 0) size.rows = window.ws_row;
  return size;
}

int text_width(int descriptor) {
  const char* const columns = std::getenv("COLUMNS");
  const int width = columns == nullptr ? 0 : std::atoi(columns);
  return width > 0 ? width : terminal_size(descriptor).columns;
}

std::string TextColours::marked(std::string_view code, std::string_view text) const {
  std::string result;
  if (enabled_) result.append("\x1b[").append(code).append("m");
  result += text;
  if (enabled_) result += "\x1b[0m";
  return result;
}

std::string clipped(std::string_view line, std::size_t columns) {
  std::string result;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.substr(i).starts_with("\x1b[")) {
      const std::size_t begin = i;
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
      result += line.substr(begin, i - begin + 1);
      continue;
    }
    const bool continues = (static_cast<unsigned char>(line[i]) & 0xC0) == 0x80;
    if (!continues) ++shown;
    if (shown <= columns) result += line[i];
  }
  return result;
}

}  // namespace rondo
