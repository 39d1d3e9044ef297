#pragma once

#include "rondo/base/process_status.h"

namespace rondo::tests {

// Returns whether a thread of any process sleeps in the kernel; of a process's number, its first thread.
inline bool is_sleeping(pid_t thread) {
  const auto status = ProcessStatus::read(thread);
  return status && status->state() == 'S';
}

}  // namespace rondo::tests
