#include "rondo/launch/pseudo_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <array>
#include <cstdlib>

namespace rondo::launch {

std::optional<Pipe> make_pseudo_terminal(TerminalSize size) {
  Pipe ends;
  ends.read_end = Descriptor(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int leader = ends.read_end.number();
  std::array<char, 64> name;
  if (leader < 0 || grantpt(leader) != 0 || unlockpt(leader) != 0 ||
      ptsname_r(leader, name.data(), name.size()) != 0)
    return std::nullopt;
  ends.write_end = Descriptor(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int follower = ends.write_end.number();
  termios settings{};
  if (follower < 0 || tcgetattr(follower, &settings) != 0) return std::nullopt;
  cfmakeraw(&settings);
  winsize window{};
  window.ws_col = static_cast<unsigned short>(size.columns);
  window.ws_row = static_cast<unsigned short>(size.rows);
  if (tcsetattr(follower, TCSANOW, &settings) != 0 || ioctl(follower, TIOCSWINSZ, &window) != 0)
    return std::nullopt;
  return ends;
}

}  // namespace rondo::launch
