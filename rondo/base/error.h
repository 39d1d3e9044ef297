#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace rondo {

// Base of every exception rondo throws. The message is complete: what failed, with which values, and what to
// do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller asked for something that cannot be: an unknown flag value, a batch larger than the data set.
// Programs exit with code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A file is missing, truncated or malformed. The message names the file, the offset and what was expected.
class DataError : public Error {
 public:
  using Error::Error;
};

// Base of errors of communication; `ranks` are the ranks (in the group's numbering) that are to blame, if
// known.
class CommunicationError : public Error {
 public:
  // `ranks` may be empty: nobody is known to be to blame.
  CommunicationError(const std::string& message, std::vector<int> ranks)
      : Error(message), ranks_(std::move(ranks)) {}
  // Who is to blame, in the numbering of the group; may be empty.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

// A peer's process is gone.
class PeerLostError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// A deadline passed; `ranks` are those that had not arrived.
class TimeoutError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// Ranks disagree about what to do: another size, dtype, operation, model or plan.
class MismatchError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// The wait was cancelled by the caller.
class CancelledError : public Error {
 public:
  using Error::Error;
};

// Process exit codes of every rondo program.
enum class ExitCode : int { ok = 0, failed = 1, usage = 2, preempted = 3 };

// Text of errno `code`, thread-safe ("No space left on device").
std::string errno_text(int code);

}  // namespace rondo
