#include "rondo/launch/descriptor.h"

#include <fcntl.h>

#include <cerrno>

#include "rondo/base/error.h"

namespace rondo::launch {

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot make a pipe: " + errno_text(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void ensure_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest free number is taken, which is this one.
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDWR);
  }
}

void set_nonblocking(int descriptor) { fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK); }

}  // namespace rondo::launch
