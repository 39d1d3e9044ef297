#pragma once

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"

namespace rondo {

// An allocation would have gone beyond MemoryLedger's limit. The message says what was wanted, what is alive,
// the largest first, and what would help; nothing was allocated.
class MemoryLimitError : public Error {
 public:
  MemoryLimitError(const std::string& message, Bytes wanted, Bytes limit)
      : Error(message), wanted_(wanted), limit_(limit) {}
  Bytes wanted() const { return wanted_; }
  Bytes limit() const { return limit_; }

 private:
  Bytes wanted_;
  Bytes limit_;
};

}  // namespace rondo
