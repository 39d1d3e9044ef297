#pragma once

#include <string>

#include "rondo/base/error.h"

namespace rondo {

// A failure that every process of a job has learned about. Exactly one process reports it, so that a job
// prints one error instead of one per process. All processes exit with the same code.
class JobError : public Error {
 public:
  JobError(const std::string& message, ExitCode exit_code, bool is_reporter)
      : Error(message), exit_code_(exit_code), is_reporter_(is_reporter) {}
  // ExitCode::usage if all failures were UsageErrors, else ExitCode::failed.
  ExitCode exit_code() const { return exit_code_; }
  bool is_reporter() const { return is_reporter_; }

 private:
  ExitCode exit_code_;
  bool is_reporter_;
};

}  // namespace rondo
