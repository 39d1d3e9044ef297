#pragma once

#include <string>

#include "rondo/base/error.h"

namespace rondo {

// A failure that every process of a job knows of. One of them is the one to report it, so that a job gives
// one error and not one per process; all end with the same exit code.
class JobError : public Error {
 public:
  JobError(const std::string& message, ExitCode exit_code, bool mine_to_report)
      : Error(message), exit_code_(exit_code), mine_to_report_(mine_to_report) {}
  // usage when all failures were UsageErrors, else failed.
  ExitCode exit_code() const { return exit_code_; }
  bool mine_to_report() const { return mine_to_report_; }

 private:
  ExitCode exit_code_;
  bool mine_to_report_;
};

}  // namespace rondo
