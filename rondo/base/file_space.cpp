#include "rondo/base/file_space.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace rondo {
namespace {

constexpr std::size_t kSmallestPiece = 4096;

}  // namespace

int take_file_space(int descriptor, std::size_t offset, std::size_t length) {
  // Kernels before 6.10 undo all of a call in shared memory when a signal comes. A program with a periodic
  // signal, as a profiler has it, gets on only with pieces that are done before the next one.
  std::size_t piece = length;
  while (length > 0) {
    piece = std::min(piece, length);
    if (fallocate(descriptor, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(piece)) ==
        0) {
      offset += piece;
      length -= piece;
    } else if (errno == EINTR) {
      piece = std::max(piece / 2, kSmallestPiece);
    } else {
      return errno;
    }
  }
  return 0;
}

}  // namespace rondo
