#pragma once

#include <unistd.h>

#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

// Returns the error of a call on a group in a process that was forked from one of its members, for all
// engines. `member`: "rank 2".
inline UsageError forked_child_error(const std::string& group, const std::string& member) {
  return UsageError(
      str("group '", group, "' is of ", member, "; process ", getpid(),
          " was forked from it and cannot use it. Make a group of its own in the child, or start "
          "the child as a new process."));
}

}  // namespace rondo
