#include "rondo/env/preemption_note.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace rondo::env {

void note_preemption() noexcept {
  const char* const path = std::getenv(kPreemptionFileVariable);
  if (path == nullptr || *path == '\0') return;
  // Where it cannot be made the launcher calls the end a failure, and says how it ended.
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

}  // namespace rondo::env
