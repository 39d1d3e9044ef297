#pragma once

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"

namespace rondo {

// An allocation would have gone beyond MemoryTracker's limit. The message says what was wanted, what is
// alive, the largest first, and what would help; nothing was allocated.
class MemoryLimitError : public Error {
 public:
  // `wanted`: what the allocation asked for.
  MemoryLimitError(const std::string& message, Bytes wanted, Bytes limit)
      : Error(message), wanted_(wanted), limit_(limit) {}
  Bytes wanted() const { return wanted_; }  // what the allocation asked for
  Bytes limit() const { return limit_; }    // of this process

 private:
  Bytes wanted_;
  Bytes limit_;
};

}  // namespace rondo
