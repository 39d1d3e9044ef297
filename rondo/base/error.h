#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace rondo {

// Base of all exceptions that rondo throws. The message is complete: the operation that failed, its values
// and how to fix it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Invalid request by the caller: an unknown flag value, a batch larger than the data set. Programs exit with
// code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A missing, truncated or malformed file. The message names the file, the offset and the expected content.
class DataError : public Error {
 public:
  using Error::Error;
};

// Base of communication errors. `ranks` are the ranks at fault in the group's numbering, if known.
class CommunicationError : public Error {
 public:
  // Creates an error; `ranks` is empty if the ranks at fault are unknown.
  CommunicationError(const std::string& message, std::vector<int> ranks)
      : Error(message), ranks_(std::move(ranks)) {}
  // Returns the ranks at fault in the group's numbering; may be empty.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

// The process of a peer has exited.
class PeerLostError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// A deadline passed; `ranks` are the ranks that had not arrived.
class TimeoutError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// Ranks disagree about an operation: a different size, dtype, operation, model or plan.
class MismatchError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// The caller cancelled the wait.
class CancelledError : public Error {
 public:
  using Error::Error;
};

// Process exit codes of every rondo program.
enum class ExitCode : int { ok = 0, failed = 1, usage = 2, preempted = 3 };

// Returns the message of errno `code` ("No space left on device"). Thread-safe.
std::string errno_text(int code);

}  // namespace rondo
