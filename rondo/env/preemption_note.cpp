#include "rondo/env/preemption_note.h"

#include <cstdlib>
#include <exception>

#include "rondo/base/output.h"

namespace rondo::env {

void note_preemption() noexcept {
  const char* const path = std::getenv(kPreemptionFileVariable);
  if (path == nullptr || *path == '\0') return;
  try {
    write_output(path, "");
  } catch (const std::exception&) {
    // The launcher then calls the end a failure, and says how it ended.
  }
}

}  // namespace rondo::env
